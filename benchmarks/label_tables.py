"""Tables of the grid of `label_noise.py`: detection, estimated noise rates and reliability of every judge."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from label_worlds import WORLDS

from likewise.score.metrics.detection import detection

MIN_USABLE_ACCURACY = 0.6
"""Minimum accuracy of a discriminant on the true labels for features to count as usable."""

MAX_RATE_ERROR = 0.03
MAX_RATED_SHARE = 0.505
"""Maximum noise rate of the cells in which estimates are counted."""

MIN_BIN_SAMPLES = 200
RELIABILITY_BINS = 10

Record = dict
"""One file of the grid: the cell, `wrong`, `base`, `scores` by name and `estimates` by name."""


def read_records(folder: Path, ours: str) -> list[Record]:
    """Return the records of every judge; scores of our judge are called `ours`, whatever name the judge has."""
    found = []
    for file in sorted(folder.glob("*/*.npz")):
        with np.load(file) as data:
            one = json.loads(str(data["about"]))
            one |= {"wrong": data["wrong"], "base": data["base"]}
            scores = dict(zip(data["names"].tolist(), data["scores"].astype(np.float64)))
        if one["judge"] not in (ours, "cleanlab", "SelfClean"):
            continue
        own = one["judge"] == ours
        one["scores"] = {ours if own else name: fill_unknown(score) for name, score in scores.items()}
        one["known"] = ~np.isnan(list(scores.values())).any(0)
        one["estimates"] = {ours if own else name: value for name, value in one["estimates"].items()}
        found.append(one)
    return found


def read_accuracy(folder: Path) -> dict[tuple[str, str, int], float]:
    """Return the accuracy of a discriminant on the true labels, by set, variant and seed."""
    file = folder / "accuracy.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {(one["data"], one["variant"], one["seed"]): one["accuracy"] for one in lines}


def write_accuracy(folder: Path, key: tuple[str, str, int], accuracy: float) -> None:
    """Append the accuracy of a set, variant and seed to the file that `read_accuracy` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "accuracy.jsonl").open("a") as out:
        out.write(json.dumps(dict(zip(("data", "variant", "seed"), key)) | {"accuracy": accuracy}) + "\n")


def fill_unknown(score: np.ndarray) -> np.ndarray:
    """Return the score with the median of the others where it is NaN, so that an unknown label counts neither way."""
    known = score[~np.isnan(score)]
    return np.where(np.isnan(score), np.median(known) if len(known) else 0.5, score)


def merge_judges(records: list[Record]) -> dict[tuple, Record]:
    """Return one record for every cell with the scores of all its judges."""
    cells: dict[tuple, Record] = {}
    for one in records:
        key = one["data"], one["variant"], one["noise"], one["seed"]
        if key in cells:
            if not np.array_equal(cells[key]["wrong"], one["wrong"]):
                raise ValueError(f"{key}: judges saw other labels; measure this cell again with the same options")
            cells[key]["scores"] |= one["scores"]
        else:
            cells[key] = one | {"scores": dict(one["scores"])}
    return cells


def weighted_precision(score: np.ndarray, wrong: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the average precision of low scores for every row of `times`, how often each sample counts; ties are one step."""
    order = np.argsort(score, kind="stable")
    last = np.searchsorted(score[order], score[order], side="right") - 1
    hit, every = times[:, order] * wrong[order], times[:, order]
    precision = hit.cumsum(1)[:, last] / np.maximum(every.cumsum(1)[:, last], 1)
    return (hit * precision).sum(1) / np.maximum(hit.sum(1), 1)


def compare_set(cells: list[Record], ours: str, resamples: int) -> dict[str, dict[str, float]]:
    """Return by rival the mean difference in AP over the cells of a set, with a 95 % bootstrap interval over samples.

    All cells of a set share their samples, so one resample of the original samples is used in all of them.
    """
    rng = np.random.default_rng(7)
    size = 1 + max(int(cell["base"].max()) for cell in cells)
    draws = np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(resamples)])
    times = np.concatenate([np.ones((1, size), draws.dtype), draws]).astype(np.int32)
    sums: dict[str, np.ndarray | float] = defaultdict(float)
    for cell in cells:
        for name, score in cell["scores"].items():
            sums[name] = sums[name] + weighted_precision(score, cell["wrong"], times[:, cell["base"]]) / len(cells)
    found = {}
    for name in (name for name in sums if name != ours):
        gap = np.asarray(sums[ours] - sums[name])
        half = 1.96 * float(gap[1:].std())  # centred: repeated samples raise the AP of weak scores more
        found[name] = {"gap": float(gap[0]), "low": float(gap[0]) - half, "high": float(gap[0]) + half}
    return found


def table_detection(cells: dict[tuple, Record], ours: str, resamples: int) -> dict:
    """Return AP and AUROC by set and by noise, and our differences by set, over the cells that every judge has scored."""
    wanted = {name for cell in cells.values() for name in cell["scores"]}
    full = [c for c in cells.values() if wanted <= c["scores"].keys() and c["wrong"].any() and not c["wrong"].all()]
    values: dict[str, dict] = {"set": defaultdict(list), "noise": defaultdict(list)}
    for cell in full:
        each = {n: detection(torch.as_tensor(s), torch.as_tensor(cell["wrong"])) for n, s in cell["scores"].items()}
        for kind, key in (("set", cell["data"]), ("noise", f"{cell['variant']}, {cell['noise']}")):
            values[kind][key].append({name: (d.AP, d.AUROC) for name, d in each.items()})
    found: dict = {
        kind: {
            key: {name: np.mean([one[name] for one in many], 0).tolist() for name in sorted(wanted)}
            for key, many in by.items()
        }
        for kind, by in values.items()
    }
    by_set, found["means"], found["cells"] = found["set"], {}, len(full)
    for title, sets in (("all", set(by_set)), ("real", set(by_set) - {*WORLDS}), ("simulated", {*by_set} & {*WORLDS})):
        if sets:
            means = {n: np.mean([by_set[data][n] for data in sets], 0).tolist() for n in sorted(wanted)}
            found["means"][f"mean over {title} sets"] = means
    found["gaps"] = {
        data: compare_set([cell for cell in full if cell["data"] == data], ours, resamples)
        for data in by_set
        if ours in wanted
    }
    return found


def table_rates(records: list[Record], accuracy: dict) -> dict:
    """Return the estimated and true noise rate of every cell, and by judge the shares within 3 points and unknown."""
    lines = []
    for one in records:
        usable = accuracy.get((one["data"], one["variant"], one["seed"]), np.nan)
        for name, estimate in one["estimates"].items():
            lines.append({
                "data": one["data"], "variant": one["variant"], "noise": one["noise"], "seed": one["seed"], "judge": name,
                "true": float(one["wrong"].mean()), "estimate": estimate, "accuracy": usable,
                "unknown labels": 1 - float(one["known"].mean()),
            })  # fmt: skip
    summary = {}
    for name in sorted({line["judge"] for line in lines}):
        counted = [
            line for line in lines
            if line["judge"] == name and line["accuracy"] >= MIN_USABLE_ACCURACY and line["true"] <= MAX_RATED_SHARE
        ]  # fmt: skip
        told = [line for line in counted if line["estimate"] is not None and np.isfinite(line["estimate"])]
        near = [abs(line["estimate"] - line["true"]) <= MAX_RATE_ERROR for line in told]
        summary[name] = {
            "cells": len(counted), "unknown": 1 - len(told) / max(1, len(counted)), "near": float(np.mean(near or [0])),
            "error": float(np.mean([abs(line["estimate"] - line["true"]) for line in told] or [np.nan])),
            "unknown labels": float(np.mean([line["unknown labels"] for line in counted] or [0])),
        }  # fmt: skip
    return {"summary": summary, "lines": lines}


def table_reliability(records: list[Record], ours: str) -> list[dict]:
    """Return for every set, variant and noise the bins of our score over all seeds, and the largest deviation of a full bin."""
    pools: dict[tuple, list] = defaultdict(list)
    for one in (one for one in records if one["judge"] == ours):
        known = one["known"]
        pools[one["data"], one["variant"], one["noise"]].append((one["scores"][ours][known], ~one["wrong"][known]))
    found = []
    for (data, variant, noise), parts in pools.items():
        score, right = (np.concatenate(values) for values in zip(*parts))
        place = np.minimum((score * RELIABILITY_BINS).astype(int), RELIABILITY_BINS - 1)
        bins = [
            [float(score[place == b].mean()), float(right[place == b].mean()), int((place == b).sum())]
            for b in np.unique(place)
        ]
        off = [abs(mean - share) for mean, share, n in bins if n >= MIN_BIN_SAMPLES]
        found.append({
            "data": data, "variant": variant, "noise": noise, "true": 1 - float(right.mean()) if len(right) else 0.0,
            "bins": bins, "worst": max(off, default=None),
        })  # fmt: skip
    return found


def tabulate(folder: Path, ours: str, resamples: int) -> dict:
    """Return all tables of a grid."""
    records, accuracy = read_records(folder, ours), read_accuracy(folder)
    return {
        "ours": ours,
        "detection": table_detection(merge_judges(records), ours, resamples),
        "rates": table_rates(records, accuracy),
        "reliability": table_reliability(records, ours),
        "accuracy": [[*key, value] for key, value in accuracy.items()],
    }


def as_text(found: dict) -> str:
    """Return the tables as Markdown, values in per cent."""
    ours, detected, lines = found["ours"], found["detection"], []
    names = sorted({name for one in detected["set"].values() for name in one}, key=lambda name: (name != ours, name))
    for kind in ("set", "noise"):
        lines += ["", f"| {kind}: AP (AUROC) | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 1)]
        for key, one in [*detected[kind].items(), *detected["means"].items()]:
            values = (f"{100 * one[n][0]:.1f} ({100 * one[n][1]:.1f})" for n in names)
            lines.append(f"| {key} | " + " | ".join(values) + " |")
    rivals = [name for name in names if name != ours]
    lines += ["", f"| AP of {ours} minus | " + " | ".join(rivals) + " |", "|" + "---|" * (len(rivals) + 1)]
    for data, gaps in detected["gaps"].items():
        shown = (
            f"{100 * g['gap']:+.1f} ({100 * g['low']:+.1f} to {100 * g['high']:+.1f})" for g in map(gaps.get, rivals)
        )
        lines.append(f"| {data} | " + " | ".join(shown) + " |")
    behind = [
        f"{data} ({name})" for data, gaps in detected["gaps"].items() for name, g in gaps.items() if g["high"] < 0
    ]
    lines += ["", f"Significantly behind: {', '.join(behind) or 'nowhere'}."]
    lines += ["", "| noise rate by | usable cells | within 3 points | unknown | mean error | labels unknown |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, one in found["rates"]["summary"].items():
        shares = " | ".join(f"{100 * one[key]:.1f}" for key in ("near", "unknown", "error", "unknown labels"))
        lines.append(f"| {name} | {one['cells']} | {shares} |")
    lines += ["", *rate_lines(found["rates"]["lines"], ours), "", *reliability_lines(found["reliability"])]
    return "\n".join(lines).strip() + "\n"


def rate_lines(lines: list[dict], ours: str) -> list[str]:
    """Return a table of our estimated noise rates, means over seeds, by set and variant."""
    noises = list(dict.fromkeys(line["noise"] for line in lines))
    by: dict[tuple, list] = defaultdict(list)
    for line in (line for line in lines if line["judge"] == ours):
        by[f"{line['data']}, {line['variant']}", line["noise"]].append(line)
    text = [f"| estimate / true by {ours} | accuracy | " + " | ".join(noises) + " |", "|" + "---|" * (len(noises) + 2)]
    for row in dict.fromkeys(row for row, _ in by):
        accuracy = np.mean([one["accuracy"] for (r, _), many in by.items() if r == row for one in many])
        cells = []
        for many in (by.get((row, noise), []) for noise in noises):
            told = [one["estimate"] for one in many if one["estimate"] is not None and np.isfinite(one["estimate"])]
            true = np.mean([one["true"] for one in many]) if many else 0
            cells.append((f"{100 * np.mean(told):.1f} / {100 * true:.1f}" if told else "unknown") if many else "")
        text.append(f"| {row} | {100 * accuracy:.0f} | " + " | ".join(cells) + " |")
    return text


def reliability_lines(found: list[dict]) -> list[str]:
    """Return a table of the largest deviation of a full bin, by set and variant, for noise up to 50 %."""
    by: dict[str, list[dict]] = defaultdict(list)
    for one in found:
        if one["worst"] is not None and one["true"] <= MAX_RATED_SHARE:
            by[f"{one['data']}, {one['variant']}"].append(one)
    text = ["| reliability | largest deviation | noise | within 0.08 |", "|---|---|---|---|"]
    for row, many in by.items():
        worst = max(many, key=lambda one: one["worst"])
        good = sum(one["worst"] <= 0.08 for one in many)
        text.append(f"| {row} | {worst['worst']:.3f} | {worst['noise']} | {good} of {len(many)} |")
    return text
