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

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays
from likewise.curate.audit.read import Findings
from likewise.labels.neighbour_search import nearest_neighbours
from likewise.labels.neighbour_votes import copy_clusters
from likewise.labels.posterior_update import CANDIDATES_COUNT, Candidates, update_posterior
from likewise.labels.review_forecast import Action as Action
from likewise.labels.review_forecast import label_effects, make_actions

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

    def without(self, positions: Int[Tensor, "d"]) -> ReviewQueue:
        """Return the queue without some suspects, such as those about which a reviewer is unsure; the posterior is the same."""
        return replace(self, decided=self.decided.index_fill(0, positions, True))

    def scaled(self, total: float) -> ReviewQueue:
        """Return the queue with effects in units of MAP@R: the positive expected gains of all suspects sum to `total`.

        If no gain was forecast (0 or below), the effects keep their unit, and order the suspects only.
        """
        whole = float(self.gain[self.suspects].clamp_min(0).sum())
        if total <= 0 or whole <= 0:
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
    near, distance = nearest_neighbours(unit, 32)[:2] if len(x) > 1 else (row.new_zeros(1, 0), x.new_zeros(1, 0))
    cluster = copy_clusters(near, distance, candidates.label[:, 0].unique(return_inverse=True)[1])
    decided = torch.zeros(len(row), dtype=torch.bool)
    return ReviewQueue(row, candidates, effect, suspects, cluster, decided)


def queue_of_findings(findings: Findings) -> ReviewQueue:
    """Return the queue of an audit without a forecast, from the scores and suggestions of audit.csv; gains have no unit.

    The classes besides the given and the suggested one are not known: they share what remains of the probability, under one
    number that no class has. There are no clusters of near copies.
    """
    samples = findings.sample
    number = {name: at for at, name in enumerate(sorted(samples.label.names))}
    others = CANDIDATES_COUNT - 2
    label = torch.full((len(samples), CANDIDATES_COUNT), len(number))
    for column, texts in enumerate((samples.label, samples.suggested)):
        found = np.array([number.get(name, len(number)) for name in texts.names])
        label[:, column] = torch.from_numpy(found[texts.code])
    score = torch.from_numpy(np.nan_to_num(samples.score, nan=1.0))
    share = np.nan_to_num(samples.confidence, nan=0.5)
    sure = torch.from_numpy(share).clamp(1 / others, 1)  # no other class is as probable
    rest = torch.cat([sure[:, None], ((1 - sure) / others)[:, None].expand(-1, others)], 1)
    candidates = Candidates(label, torch.cat([score[:, None], (1 - score)[:, None] * rest], 1))
    trained = torch.from_numpy(samples.split.find("train") | (not {"train", "test"} <= set(samples.split.names)))
    row, suspects = torch.from_numpy(samples.row.copy()), torch.from_numpy(findings.suspects.place)
    none = torch.zeros(len(row), dtype=torch.bool)
    return ReviewQueue(row, candidates, label_effects(label[:, 0], trained), suspects, torch.arange(len(row)), none)


def class_numbers(queue: ReviewQueue, findings: Findings) -> dict[str, int]:
    """Return class name -> class number of the queue, by the given labels; raise if the queue is of another audit."""
    samples, row, given = findings.sample, queue.row.numpy(), queue.candidates.label[:, 0].numpy()
    place = samples.places(row)
    code = samples.label.code[place]
    number = np.full(len(samples.label.names), -1, np.int64)
    number[code] = given
    found = {name: at for name, at in zip(samples.label.names, number.tolist()) if at >= 0}
    same = len(row) == len(samples) and bool((place >= 0).all() and (number[code] == given).all())
    if not same or len(set(found.values())) != len(found):
        raise LikewiseError(
            f"review: {POSTERIOR_FILE} must have the samples and labels of audit.csv, but has others; audit again with --forecast"
        )
    return found
