"""Queue of a review: the posterior and the effect of every label, the actions in their order, and the update after decisions.

A queue is a value: `decide` returns a new one. So a page can recompute it from the store of decisions at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.io.files import atomic_write, load_arrays
from likewise.numerics.copy_clusters import copy_clusters, nearest_neighbours
from likewise.numerics.label_draws import Candidates
from likewise.numerics.review_order import Action as Action
from likewise.numerics.review_order import label_effects, make_actions, remaining_gain, should_stop
from likewise.numerics.review_update import update_posterior

POSTERIOR_FILE = "posterior.npz"

Order = Literal["suspicion", "gain"]


@dataclass(frozen=True, eq=False)
class ReviewQueue:
    """Suspects of an audit with their posterior. Positions count all samples of the audit; `row` are rows of the data."""

    row: Int[Tensor, "N"]
    candidates: Candidates
    effect: Float[Tensor, "N"]  # gain if a wrong label of the sample is corrected
    suspects: Int[Tensor, "M"]  # positions, the most suspect first
    cluster: Int[Tensor, "N"]  # clusters of near copies
    decided: Bool[Tensor, "N"]

    @property
    def gain(self) -> Float[Tensor, "N"]:
        """Expected gain in MAP@R, as a share, of deciding each sample; in any unit if no gain was forecast."""
        return self.candidates.wrong * self.effect

    @property
    def open(self) -> Int[Tensor, "m"]:
        """Positions of the suspects without a decision."""
        return self.suspects[~self.decided[self.suspects]]

    def actions(self, order: Order = "gain") -> list[Action]:
        """Return the open suspects in the order of the review.

        Args:
            order: "suspicion": one by one, the most probably wrong first; "gain": the highest expected gain per decision first,
                with groups that are decided at once.
        """
        if order == "gain":
            return make_actions(self.candidates, self.open, self.gain, by="suggested", cluster=self.cluster)
        wrong, best, gain = self.candidates.wrong, self.candidates.suggested, self.gain
        some = sorted(self.open.tolist(), key=lambda at: (-float(wrong[at]), at))
        return [Action((at,), int(best[at]), float(gain[at])) for at in some]

    def decide(self, positions: Int[Tensor, "D"], labels: Int[Tensor, "D"]) -> ReviewQueue:
        """Return the queue after decisions: the label that a reviewer chose for each position, the given one for "keep".

        All decisions of a review are passed at once, to the queue as the audit wrote it.
        """
        found = update_posterior(self.candidates, positions, labels)
        return replace(self, candidates=found, decided=self.decided.index_fill(0, positions, True))

    def remaining(self, block: int, order: Order = "gain") -> float:
        """Return the expected gain in MAP@R of the next `block` decisions."""
        return remaining_gain(self.actions(order), block)

    def should_stop(self, least: float, block: int = 20, order: Order = "gain") -> bool:
        """Return whether the next block of decisions is expected to gain less than `least` (a share of MAP@R)."""
        return should_stop(self.actions(order), block, least)

    def scaled(self, total: float | None) -> ReviewQueue:
        """Return the queue with effects in units of MAP@R: the positive expected gains of all suspects sum to `total`."""
        whole = float(self.gain[self.suspects].clamp_min(0).sum())
        if total is None or total <= 0 or whole <= 0:
            return self
        return replace(self, effect=self.effect * (total / whole))

    def write(self, folder: Path) -> None:
        """Write posterior.npz."""
        with atomic_write(Path(folder) / POSTERIOR_FILE) as aside, aside.open("wb") as file:
            np.savez_compressed(
                file, row=self.row.numpy(), label=self.candidates.label.numpy(), suspects=self.suspects.numpy(),
                probability=self.candidates.probability.numpy(), effect=self.effect.numpy(), cluster=self.cluster.numpy(),
            )  # fmt: skip


def read_queue(folder: Path) -> ReviewQueue:
    """Return the queue of an audit folder, without decisions."""
    names = ("row", "label", "probability", "effect", "suspects", "cluster")
    file = Path(folder) / POSTERIOR_FILE
    if not file.exists():
        raise LikewiseError(
            f"review: the folder must have {POSTERIOR_FILE}, but {folder} has none; audit with --forecast"
        )
    found = load_arrays(file, "review", "audit again", names)
    row, label, probability, effect, suspects, cluster = (torch.as_tensor(found[name]) for name in names)
    same = len(row) == len(label) == len(probability) == len(effect) == len(cluster)
    if not same or label.shape != probability.shape or (len(suspects) and int(suspects.max()) >= len(row)):
        raise LikewiseError(f"review: the arrays of {file} must fit together, but do not; audit again")
    decided = torch.zeros(len(row), dtype=torch.bool)
    return ReviewQueue(row, Candidates(label, probability), effect, suspects, cluster, decided)


def build_queue(
    x: Float[Tensor, "N K"], row: Int[Tensor, "N"], candidates: Candidates, suspects: Int[Tensor, "M"],
    train: Bool[Tensor, "N"],
) -> ReviewQueue:  # fmt: skip
    """Return the queue of a review, with effects of training labels and clusters of near copies.

    The effects use no label of a test row, so that a gain on the test rows stays a fair measurement. Rows that are not trained
    have no effect.
    """
    effect = label_effects(candidates.label[:, 0], train)
    unit = torch.nn.functional.normalize(x, dim=1)
    near, distance = nearest_neighbours(unit, 32) if len(x) > 1 else (row.new_zeros(1, 0), x.new_zeros(1, 0))
    cluster = copy_clusters(near, distance, candidates.label[:, 0].unique(return_inverse=True)[1])
    decided = torch.zeros(len(row), dtype=torch.bool)
    return ReviewQueue(row, candidates, effect, suspects, cluster, decided)
