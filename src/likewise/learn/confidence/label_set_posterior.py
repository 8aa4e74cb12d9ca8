from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.contracts import Confidence
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError, Relabelling, SampleWeights
from likewise.labels.label_noise import SCORE_BLOCK_SIZE
from likewise.labels.label_set_noise import judge_labels


class LabelSetPosterior(Confidence):
    """Adds labels that are surely missing and removes labels that are surely wrong, where samples have several labels each.

    Paper: ours. The probabilities are those of `likewise audit` for label sets: every label is a problem of two classes, with
        densities, votes of neighbours and the other labels as evidence, and with fitted shares of missing and wrong labels.
    Formula: q_il = P(the given state of label l is wrong), mean over the rounds; the state is changed if q_il >= `least`, and the
        sample gets the label set of the training set that differs least from its changed set, if that is nearer than its own
    Differs: it is ours. No sample is dropped, and no label set is new: a set that no other sample has is replaced by the nearest
        one. A round does not count for a label that was changed and that the round would change too.
    Needs: data with several labels per sample, and features that separate them; labels of few samples are left alone.

    Args:
        labels: given class (set of labels) of every training sample; the run fills it in.
        label_sets: label numbers of every class; the run fills it in.
        every: time between two relabelling rounds, each of which embeds the whole training set without gradient. The first round
            is before the first step.
        least: smallest probability of an error with which a label is added or removed.
        folds: number of cross-fitting folds.
        seed: of the division into folds; the run fills it in.
        group: group of every training sample, -1: none; samples of a group are in one fold; the run fills it in.
    """

    total: Tensor
    seen: Tensor
    changed: Tensor
    sets: Tensor

    uses_classes = False

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        label_sets: Sequence[Sequence[int]],
        every: str = "2e",
        least: float = 0.9,
        folds: int = 10,
        seed: int = 0,
        group: Int[np.ndarray, "N"] | None = None,
    ):
        super().__init__()
        if not 0.5 <= least <= 1 or folds < 2:
            raise LikewiseError(
                f"LabelSetPosterior: least in [0.5, 1] and folds >= 2 must hold, got least={least}, folds={folds}"
            )
        self.labels = labels
        self.label_sets = label_sets
        self.every = every
        self.least = least
        self.folds = folds
        self.seed = seed
        self.group = group
        sets = torch.zeros(len(label_sets), 1 + max(max(one) for one in label_sets), dtype=torch.bool)
        for number, one in enumerate(label_sets):
            sets[number, list(one)] = True
        shape = (len(labels), sets.shape[1])
        self.register_buffer("sets", sets, persistent=False)
        self.register_buffer("total", torch.zeros(shape))  # sum of the probabilities of an error over the rounds
        self.register_buffer("seen", torch.zeros(shape))  # number of rounds that counted
        self.register_buffer("changed", torch.zeros(shape, dtype=torch.bool))  # states that the last round changed

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        return SampleWeights(w=torch.ones_like(row, dtype=torch.float32))

    @torch.no_grad()
    def relabel(self, e: Embedded) -> Relabelling:
        x, y = (e.z if e.f is None else e.f).float(), e.y
        if not torch.isfinite(x).all():
            raise LikewiseError(
                "LabelSetPosterior: the features must be finite, got NaN or infinite values; lower lr or set clip_norm"
            )
        has = self.sets[y]
        group = None if self.group is None else torch.as_tensor(self.group, device=y.device)
        with full_precision_matmul(x):
            each, noise = judge_labels(x, has.float(), folds=self.folds, seed=self.seed, group=group)
            known = noise.informative.to(x.device)
            for rows in each.blocks():
                wrong = noise.wrong(each.scores(rows), has[rows].float()) * known
                counts = ~(self.changed[rows] & (wrong > 0.5))
                self.total[rows] += (wrong * counts).to(self.total)
                self.seen[rows] += counts
        wrong = self.total / self.seen.clamp_min(1)
        self.changed.copy_(wrong >= self.least)
        top = nearest_sets(has ^ self.changed, self.sets, y)
        shares = [float(share[known.to(share.device)].mean()) for share in (noise.missing, noise.superfluous)]
        facts: dict[str, float] = {"missing labels": shares[0], "superfluous labels": shares[1]}
        return Relabelling(
            y=top, w=torch.ones_like(wrong[:, 0]), suspicion=wrong.max(1).values, threshold=0.5, facts=facts
        )


def nearest_sets(wanted: Bool[Tensor, "N L"], sets: Bool[Tensor, "S L"], y: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Return the class whose label set differs least from the wanted set, the first of ties; `y` if no other differs less."""
    table, size, found = sets.float(), sets.sum(1).float(), y.clone()
    for rows in (wanted != sets[y]).any(1).nonzero()[:, 0].split(max(1, SCORE_BLOCK_SIZE // len(sets))):
        apart = wanted[rows].sum(1, keepdim=True) + size - 2 * wanted[rows].float() @ table.T
        least, place = apart.min(1)
        own = apart.gather(1, y[rows, None])[:, 0]
        found[rows] = torch.where(least < own, place, y[rows])
    return found
