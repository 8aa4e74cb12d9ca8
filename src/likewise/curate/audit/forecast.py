"""Forecast of a review from an audit: what the next decisions bring, and in which order they are made.

Files of the audit folder: forecast.json has the curve, queue.csv the suspects in the order of the review, posterior.npz the label
posterior behind both, and heads.npz the rows and features of the heads, so that the gain after a review is measured as it was
forecast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.files import atomic_write, load_arrays, write_csv, write_json
from likewise.core.progress import bar
from likewise.core.settings import Audit
from likewise.core.types import LikewiseError
from likewise.curate.audit.read import FORECAST_FILE, QUEUE_FILE, Findings
from likewise.curate.audit.records import SplitQuality, Subject
from likewise.curate.audit.review_queue import Order, ReviewQueue, build_queue
from likewise.labels.class_density import eigenvectors
from likewise.labels.posterior_update import Candidates
from likewise.labels.review_forecast import (
    FLAT_SHARE,
    INTERVAL_COVERAGE_SHARE,
    METRICS,
    WORLDS_COUNT,
    Forecast,
    GainCurve,
    curve_points,
    forecast_review,
)

HEADS_FILE = "heads.npz"
"""File of an audit folder: the rows and features of the heads."""

GAIN_PARTS = ("gain", "low", "high")
"""Parts of a forecast gain in forecast.json."""

MAX_FORECAST_DIMS = 64
"""Number of principal components of the features that heads of a forecast are trained on."""

MAX_FORECAST_ROWS = 2000
"""Maximum number of training rows, and of test rows, of a forecast; of more, whole classes are drawn at random."""

SECONDS_PER_DECISION = 4.0
"""Assumed pace of a reviewer; it was not measured."""


@dataclass(frozen=True, eq=False)
class ForecastHead:
    """Rows that train and test the heads of a forecast. `row` are rows of the data."""

    row: Int[Tensor, "N"]
    given: Int[Tensor, "N"]
    train: Bool[Tensor, "N"]  # the others are scored
    x: Float[Tensor, "N K"]
    scored_as_given: bool  # whether the given labels of the test rows score, as in the forecast
    seed: int

    def write(self, folder: Path) -> None:
        """Write heads.npz, with features of half precision."""
        with atomic_write(Path(folder) / HEADS_FILE) as aside, aside.open("wb") as file:
            np.savez_compressed(
                file, row=self.row.numpy(), given=self.given.numpy(), train=self.train.numpy(), x=self.x.half().numpy(),
                scored_as_given=np.array(self.scored_as_given), seed=np.array(self.seed),
            )  # fmt: skip

    def number_labels(self, findings: Findings, labels: Mapping[int, str | None]) -> Int[Tensor, "N"]:
        """Return the labels after a review; -1: removed. Classes that no row of the heads has get new numbers.

        Args:
            labels: row of the data -> its new class, or None if it was removed.
        """
        number = {findings.sample[row].label: label for row, label in zip(self.row.tolist(), self.given.tolist())}
        found, first = self.given.clone(), int(self.given.max()) + 1
        for place, row in enumerate(self.row.tolist()):
            if row in labels:
                name = labels[row]
                found[place] = -1 if name is None else number.setdefault(name, first + len(number))
        return found


class AuditRows:
    """All rows of an audit with features, given labels and their posterior, and which of them train and test a head."""

    def __init__(self, subject: Subject, quality: dict[str, SplitQuality], seed: int):
        names, self.seed = list(subject.splits), seed
        self.row = torch.cat([subject.splits[name].e.row for name in names])
        self.given = torch.as_tensor(subject.items.y)[self.row]
        self.candidates = join_candidates([split_candidates(subject, name, quality[name]) for name in names])
        self.suspect = torch.cat([quality[name].flagged & ~quality[name].quality.is_off_topic for name in names])
        self.own_test = "train" in names and "test" in names
        part = np.concatenate([np.full(len(subject.splits[name].e.row), name) for name in names])
        self.train, self.test = divide(self.given, part, self.own_test, seed)
        self.trained = (
            torch.as_tensor(part == "train") if self.own_test else torch.ones(len(self.row), dtype=torch.bool)
        )
        self.x = project(forecast_features(subject, names), self.train)

    @property
    def head(self) -> ForecastHead:
        """The rows that train or test heads, for a fit with labels of a review."""
        used = self.train | self.test
        return ForecastHead(
            self.row[used], self.given[used], self.train[used], self.x[used], self.own_test, self.seed
        )  # fmt: skip

    @property
    def queue(self) -> Int[Tensor, "M"]:
        """Positions of the suspects, the most suspect first."""
        order = self.candidates.wrong.argsort(descending=True, stable=True)
        return order[self.suspect[order]]


def split_candidates(subject: Subject, name: str, found: SplitQuality) -> Candidates:
    """Return the label posterior of one split, with the evidence of copies; a label without a score is certain."""
    given = torch.as_tensor(subject.items.y)[subject.splits[name].e.row]
    kept = found.quality.candidates
    if kept is None:
        return Candidates(given[:, None], torch.ones(len(given), 1, dtype=torch.float64))
    score = found.quality.score
    return kept.with_wrong(torch.where(score.isnan(), 0.0, 1 - score).to(kept.probability))


def join_candidates(parts: Sequence[Candidates]) -> Candidates:
    """Return the candidates of several splits; missing ones repeat the given label with probability 0."""
    width = max(2, *(one.label.shape[1] for one in parts))
    label, probability = [], []
    for one in parts:
        more = width - one.label.shape[1]
        label.append(torch.cat([one.label, one.label[:, :1].expand(-1, more)], 1))
        probability.append(torch.cat([one.probability.double(), torch.zeros(len(one.label), more).double()], 1))
    return Candidates(torch.cat(label), torch.cat(probability))


def divide(
    given: Int[Tensor, "N"], part: np.ndarray, own_test: bool, seed: int
) -> tuple[Bool[Tensor, "N"], Bool[Tensor, "N"]]:
    """Return which rows train and which test a head: the splits of the data, or half of the classes each."""
    random = torch.Generator().manual_seed(seed)
    if own_test:
        train, test = torch.as_tensor(part == "train"), torch.as_tensor(part == "test")
    else:
        label, place = given.unique(return_inverse=True)
        train = (torch.randperm(len(label), generator=random) < (len(label) + 1) // 2)[place]
        test = ~train
    return limit_rows(given, train, random), limit_rows(given, test, random)


def limit_rows(given: Int[Tensor, "N"], kept: Bool[Tensor, "N"], random: torch.Generator) -> Bool[Tensor, "N"]:
    """Return at most `MAX_FORECAST_ROWS` of the kept rows: whole classes in random order, or random rows of the first one."""
    if int(kept.sum()) <= MAX_FORECAST_ROWS:
        return kept
    label, place = given.unique(return_inverse=True)
    size = torch.bincount(place[kept], minlength=len(label))
    order = torch.randperm(len(label), generator=random)
    order = order[size[order] > 0]
    within = size[order].cumsum(0) <= MAX_FORECAST_ROWS
    if int(within.sum()) >= min(20, len(order)):
        chosen = torch.zeros(len(label), dtype=torch.bool).index_fill_(0, order[within], True)
        return kept & chosen[place]
    rows = kept.nonzero()[:, 0]
    some = rows[torch.randperm(len(rows), generator=random)[:MAX_FORECAST_ROWS]]
    return torch.zeros_like(kept).index_fill_(0, some, True)


def forecast_features(subject: Subject, names: Sequence[str]) -> Float[Tensor, "N F"]:
    """Return the features that a head would be trained on: of the network before training if there are such."""
    parts = [subject.splits[name].e for name in names]
    if subject.start_features is not None:
        return subject.start_features[torch.cat([e.row for e in parts])].float().cpu()
    return torch.cat([e.z if e.f is None else e.f for e in parts]).float().cpu()


def project(x: Float[Tensor, "N F"], train: Bool[Tensor, "N"]) -> Float[Tensor, "N K"]:
    """Return the first principal components of the training rows, for all rows, with variance 1 over all."""
    own = x[train] if bool(train.any()) else x
    x = x - own.mean(0)
    if x.shape[1] > MAX_FORECAST_DIMS:
        own = own - own.mean(0)
        x = x @ eigenvectors(own.T @ own)[1][:, -MAX_FORECAST_DIMS:]
    return x / x[train].std().clamp_min(1e-12)


def forecast_audit(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, worlds: int = WORLDS_COUNT
) -> dict:
    """Write forecast.json, queue.csv, posterior.npz and heads.npz of an audit, and return the content of the first."""
    rows = AuditRows(subject, quality, config.seed)
    queue = build_queue(rows.x, rows.row, rows.candidates, rows.queue, rows.trained)
    actions = queue.actions(config.order)
    order = torch.tensor([at for one in actions for at in one.rows], dtype=torch.long)
    inside = order[(rows.train | rows.test)[order]]  # of large data, some classes are left out
    points = curve_points(len(inside))
    with bar("forecast of the review", worlds, quiet=config.quiet) as progress:
        found = forecast_review(
            rows.x, rows.given, rows.candidates, inside, train=rows.train, test=rows.test, k=points.tolist(),
            scored_as_given=rows.own_test, worlds=worlds, seed=config.seed, progress=progress.advance,
        )  # fmt: skip
    if len(order) and not len(inside):
        found = replace(found, reason="no suspect is among the samples that train or test the head")
    scale = len(order) / max(1, len(inside))
    about = describe_forecast(found, scale, config.order, rows)
    total = about["curve"][-1]["MAP@R"]["gain"] if found.curves else 0.0
    queue = queue.scaled(total)
    queue.write(folder)
    if found.curves:
        rows.head.write(folder)
    write_csv(
        folder / QUEUE_FILE,
        ("place", "row", "action", "wrong", "gain"),
        queue_lines(queue, config.order, bool(found.curves)),
    )
    write_json(folder / FORECAST_FILE, about)
    return about


def queue_lines(queue: ReviewQueue, order: Order, forecast: bool) -> list[list]:
    """Return the lines of queue.csv: rows in the order of the review; rows of one action are decided at once.

    Args:
        forecast: whether a gain was forecast; without one, the gains of single labels have no unit and are left out.
    """
    lines, gain, wrong = [], queue.gain, queue.candidates.wrong
    for number, one in enumerate(queue.actions(order)):
        for at in one.rows:
            shown = f"{float(gain[at]):.6g}" if forecast else ""
            lines.append([len(lines), int(queue.row[at]), number, f"{float(wrong[at]):.6g}", shown])
    return lines


def describe_forecast(found: Forecast, scale: float, order: str, rows: AuditRows) -> dict:
    """Return the content of forecast.json; k counts suspects of the whole audit."""
    curve = []
    for place, k in enumerate(found.k.tolist()):
        reviewed = round(k * scale)
        line: dict = {
            "k": reviewed, "wrong": float(found.corrected[place]) * scale,
            "minutes": reviewed * SECONDS_PER_DECISION / 60,
        }  # fmt: skip
        for name, one in found.curves.items():
            line[name] = {part: float(getattr(one, "mean" if part == "gain" else part)[place]) for part in GAIN_PARTS}
        curve.append(line)
    flat = found.flat_at
    return {
        "order": order, "coverage": INTERVAL_COVERAGE_SHARE, "seconds_per_decision": SECONDS_PER_DECISION, "reason": found.reason,
        "suspects": int(rows.suspect.sum()), "curve": curve, "flat_at": None if flat is None else round(flat * scale),
        "start": {name: one.start for name, one in found.curves.items()},
        "scored": "the test split" if rows.own_test else "the classes of one half, by a head that is trained with the other half",
    }  # fmt: skip


def forecast_lines(about: dict) -> list[str]:
    """Return the forecast in three or four sentences for the terminal."""
    if about["reason"]:
        return [f"Forecast of a review: unknown, because {about['reason']}"]
    last = about["curve"][-1]
    said = [f"Forecast: a review of all {last['k']:,} suspects ({minutes(last)}) changes a head on these features by"]
    for name in METRICS:
        one = last[name]
        said.append(
            f"  {name} {points(one['gain'])} points ({points(one['low'])} to {points(one['high'])}, 90 % interval)"
        )
    if about["flat_at"] is None or last["MAP@R"]["high"] <= 0:
        said.append("  No gain in MAP@R is expected.")
    elif about["flat_at"] < last["k"]:
        line = next(one for one in about["curve"] if one["k"] >= about["flat_at"])
        said.append(
            f"  The first {line['k']:,} suspects ({minutes(line)}) bring {FLAT_SHARE:.0%} of the gain in MAP@R."
        )
    return said


def curve_cells(about: dict) -> list[tuple[str, ...]]:
    """Return the curve as a table: reviewed suspects, minutes, wrong labels corrected, and both gains with their intervals."""
    if about["reason"]:
        return []
    return [
        (f"{line['k']:,}", minutes_text(line), f"{line['wrong']:,.0f}", *(gain_text(line[name]) for name in METRICS))
        for line in about["curve"] if line["k"]
    ]  # fmt: skip


def gain_text(one: dict) -> str:
    """Return a gain in points with its interval; without an interval if there is none."""
    ends = "" if one["low"] is None else f" ({points(one['low'])} to {points(one['high'])})"
    return f"{points(one['gain'])}{ends}"


def minutes_text(line: dict) -> str:
    """Return the minutes of a review, with a digit after the point if they are few."""
    return f"{line['minutes']:.1f}" if line["minutes"] < 10 else f"{line['minutes']:,.0f}"


def minutes(line: dict) -> str:
    """Return the time of a review in words."""
    return f"{max(1, round(line['minutes'])):,} min at {SECONDS_PER_DECISION:g} s each"


def points(share: float) -> str:
    """Return a change of a metric in points, with its sign."""
    return f"{100 * share:+.1f}"


def read_head(folder: Path) -> ForecastHead | None:
    """Return the head of the forecast of an audit folder; None: it has none."""
    file = Path(folder) / HEADS_FILE
    if not file.exists():
        return None
    names = ("row", "given", "train", "x", "scored_as_given", "seed")
    row, given, train, x, as_given, seed = load_arrays(file, "proof", "audit again", names).values()
    if not len(row) == len(given) == len(train) == len(x) or not len(row) or train.dtype != bool or x.ndim != 2:
        raise LikewiseError(f"proof: the arrays of {file} must fit together, but do not; audit again")
    row, given, train, x = (torch.as_tensor(one) for one in (row, given, train, x.astype(np.float32)))
    return ForecastHead(row, given, train, x, bool(as_given), int(seed))


def forecast_at(about: dict, reviewed: float, name: str) -> dict:
    """Return the forecast gain of a metric, with its interval, after any number of reviewed suspects."""
    k = np.asarray([line["k"] for line in about["curve"]])
    curve = GainCurve(
        about["start"][name], *(np.asarray([line[name][part] for line in about["curve"]]) for part in GAIN_PARTS)
    )
    return dict(zip(GAIN_PARTS, curve.at(k, reviewed), strict=True))
