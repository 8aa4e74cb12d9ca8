"""The head that a forecast is about: the rows and features that it was forecast with, and its fit with labels of a review.

heads.npz of the audit folder has them, so that the gain after a review is measured as it was forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays
from likewise.curate.audit.read import Findings
from likewise.labels.many_heads import HeadSettings, QueryScores, score_queries, train_heads
from likewise.labels.review_forecast import METRICS, WORLDS_COUNT
from likewise.score.intervals import MIN_INTERVAL_UNITS, paired_interval

HEADS_FILE = "heads.npz"

FITS_COUNT = 8
"""Number of heads for each set of labels whose mean is the realised metric; the forecast interval is for one training."""


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


def refit_head(head: ForecastHead, reviewed: Int[Tensor, "N"], settings: HeadSettings = HeadSettings()) -> list[dict]:
    """Return a row for each metric: the head with the given labels (before) and with the labels of a review (after).

    Heads are trained and scored as in the forecast, from seeds that it did not use. A training row with a class that no training
    row was given is left out. The test rows are scored with their given labels, or, where the forecast draws them too, with those
    of the review. The interval is over test classes, or over queries if there are few classes, for these trainings.

    Args:
        reviewed: labels after the review; -1: removed.
    """
    train, test = head.train, ~head.train
    known = torch.isin(reviewed, head.given[train])
    labels = torch.stack([head.given[train], torch.where(known, reviewed, -1)[train]])
    seeds = head.seed + WORLDS_COUNT + torch.arange(FITS_COUNT)
    with torch.no_grad():
        w = train_heads(head.x[train], labels.repeat_interleave(FITS_COUNT, 0), seeds.repeat(2), settings)
    scored = (head.given if head.scored_as_given else reviewed)[test]
    fits = [score_queries(head.x[test], scored, one) for one in w]
    before, after = fits[:FITS_COUNT], fits[FITS_COUNT:]
    if not len(before[0].place):
        return []
    unit = scored[before[0].place].numpy()
    over_classes = len(np.unique(unit)) >= MIN_INTERVAL_UNITS
    rows = []
    for name, field in zip(METRICS, ("r1", "mapr"), strict=True):
        a, b = mean_scores(before, field), mean_scores(after, field)
        rivals = (before[0].rival.numpy(), after[0].rival.numpy())
        one = paired_interval(a, b, unit, rivals) if over_classes else paired_interval(a, b)
        low, high = (None, None) if one.reason else (one.low, one.high)
        rows.append({
            "metric": name, "before": float(a.mean()), "after": float(b.mean()), "difference": one.mean, "low": low,
            "high": high, "reason": one.reason,
        })  # fmt: skip
    return rows


def mean_scores(fits: list[QueryScores], field: str) -> Float[np.ndarray, "Q"]:
    """Return the mean of a metric over several heads, for each query."""
    return torch.stack([getattr(one, field) for one in fits]).double().mean(0).numpy()
