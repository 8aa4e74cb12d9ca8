"""An audit folder with a forecast, groups of suspects, exact copies and images of no class, for tests of a review's plan."""

import csv
import json

import numpy as np
import torch

from likewise.curate.audit.review_queue import ReviewQueue
from likewise.curate.audit.write import FIXED_COLUMNS
from likewise.labels.posterior_update import Candidates

NAMES = ("finch", "gull", "robin", "tit", "wren")
HEAD = [*FIXED_COLUMNS, "off_topic"]
GAIN = 0.04
"""Forecast gain of all suspects in MAP@R."""


def write_planned(folder, kinds, *, forecast=True, gain=GAIN, order="gain", off_topic=(), copies=(), classes=NAMES):
    """Write an audit; rows are numbered from 100, the suspects first.

    Args:
        kinds: (given, suggested, number, probability that the label is wrong) of suspects.
        off_topic: probabilities that images fit no class.
        copies: pairs of classes: one image, twice in the data, with both labels.
        forecast: whether the folder has a forecast and the posterior, whose class numbers go against the alphabet.
    """
    lines = []
    for given, suggested, number, wrong in kinds:
        for at in range(number):
            p = wrong - 0.001 * at
            lines.append([given, 1 - p, "flagged", suggested, 1.0, 0.5, "", "train", "", ""])
    for one, other in copies:
        first = 100 + len(lines)
        lines.append([one, 0.3, "conflict", other, 1.0, 0.5, "same image", "train", first, ""])
        lines.append([other, 0.7, "conflict", "", "", "", "same image", "train", first, ""])
    lines += [["finch", 0.9, "off-topic", "", "", "", "", "train", "", p] for p in off_topic]
    lines += [[name, 0.95, "ok", "", "", "", "", "train", "", ""] for name in classes for _ in range(10)]
    rows = [[100 + at, f"{at}.png", *line] for at, line in enumerate(lines)]
    with open(folder / "audit.csv", "w", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])
    about = {"title": "birds", "root": "", "rows": 100 + len(rows), "pictures": True}
    (folder / "audit.json").write_text(json.dumps(about))
    if forecast:
        write_forecast(folder, rows, classes, gain, order)


def write_forecast(folder, rows, classes, gain, order):
    number = {name: len(classes) - at for at, name in enumerate(classes)}
    wrong = torch.tensor([1 - row[3] for row in rows], dtype=torch.float64)
    label = torch.tensor([[number[row[2]], number.get(row[5], 0), 0] for row in rows])
    candidates = Candidates(label, torch.stack([1 - wrong, wrong * 0.97, wrong * 0.03], 1))
    suspects = torch.tensor([at for at, row in enumerate(rows) if row[4] in ("flagged", "conflict") and row[3] < 0.5])
    row, none = torch.tensor([row[0] for row in rows]), torch.zeros(len(rows), dtype=torch.bool)
    queue = ReviewQueue(row, candidates, torch.ones(len(rows)).double(), suspects, torch.arange(len(rows)), none)
    queue.scaled(gain).write(folder)
    k = np.unique(np.linspace(0, len(suspects), 5).astype(int)).tolist()
    curve = [
        {"k": n, "wrong": n, "minutes": n / 15, **{name: bounds(gain * n / max(k)) for name in ("R@1", "MAP@R")}}
        for n in k
    ]
    about = {
        "order": order, "coverage": 0.9, "seconds_per_decision": 4.0, "reason": "", "suspects": len(suspects), "curve": curve,
        "flat_at": k[-1], "start": {"R@1": 0.6, "MAP@R": 0.4}, "scored": "test split",
    }  # fmt: skip
    (folder / "forecast.json").write_text(json.dumps(about))


def bounds(gain):
    return {"gain": gain, "low": gain / 2, "high": 2 * gain}
