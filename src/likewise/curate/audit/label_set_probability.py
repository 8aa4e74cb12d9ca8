"""Probability that each label of a set is superfluous, and that each absent label is missing, from features of the whole data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.labels.label_set_evidence import LabelSetEvidence
from likewise.labels.label_set_noise import judge_labels

MIN_LABEL_SAMPLES = 6
"""Minimum number of samples with a label, and without it, apart from copies; a label of fewer cannot be scored."""

FEW_REASON = f"fewer than {MIN_LABEL_SAMPLES} samples have it"
COMMON_REASON = f"fewer than {MIN_LABEL_SAMPLES} samples do not have it"
UNINFORMATIVE_REASON = "the features and the other labels explain it no better than its frequency does"
"""Reasons why a label cannot be scored."""


@dataclass(frozen=True, eq=False)
class LabelSetQuality:
    """P(the given state is wrong) for every sample and label: a given label is superfluous, or an absent one is missing.

    NaN: unknown. `reason` is why, for every label; empty: it is known. `missing` is the estimated share of the samples that have
    a label but were not given it, `superfluous` the share of those that have it not but were given it.
    """

    has: Bool[Tensor, "N L"]
    wrong: Float[Tensor, "N L"]
    missing: Float[Tensor, "L"]
    superfluous: Float[Tensor, "L"]
    reason: tuple[str, ...]

    @property
    def flagged(self) -> Bool[Tensor, "N L"]:
        """Where the given state is more likely wrong than right."""
        return self.wrong > 0.5

    @property
    def suggested(self) -> Bool[Tensor, "N L"]:
        """The label sets with every flagged state changed."""
        return self.has ^ self.flagged

    @property
    def score(self) -> Float[Tensor, "N"]:
        """P(right) of the most suspect state of every sample; NaN if all are unknown."""
        worst = self.wrong.nan_to_num(-1.0).max(1).values
        return torch.where(worst < 0, torch.nan, 1 - worst)


@torch.no_grad()
def score_label_sets(
    x: Float[Tensor, "N F"], has: Bool[Tensor, "N L"], seed: int = 0, group: Int[Tensor, "N"] | None = None
) -> LabelSetQuality:
    """Return for every sample and label the probability that the given state is wrong.

    Formula: the posterior of `LabelSetNoise`, from densities, votes of neighbours and the other labels of the sample, none of
        which the state itself affects. No probability is above 1 - 1 / (n + 2), n the smaller of the numbers of samples with and
        without the label: n samples do not make surer.
    Differs: it is ours. A label that too few samples have, or that nothing explains, is unknown (NaN) for all samples.

    Args:
        x: features, or embeddings.
        has: whether each sample was given each label.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
    """
    if len(x) != len(has) or len(x) < 3 or has.shape[1] < 1:
        raise LikewiseError(
            f"score_label_sets: three samples or more with one row of labels each are needed, got {len(x)} feature vectors and "
            f"labels of shape {tuple(has.shape)}; add data"
        )
    if not bool(torch.isfinite(x).all()):
        raise LikewiseError(
            "score_label_sets: features must be finite, got NaN or infinite values; leave out these rows"
        )
    x, given = at_least_float32(x).float(), has.float()
    with full_precision_matmul(x):
        each, noise = judge_labels(x, given, folds=min(10, len(x)), seed=seed, group=group)
        wrong = torch.cat([noise.wrong(each.scores(rows).double(), given[rows]).float() for rows in each.blocks()])
    with_it, without = cluster_counts(each)
    ceiling = 1 - 1 / (torch.minimum(with_it, without) + 2)
    few, common = (with_it < MIN_LABEL_SAMPLES).tolist(), (without < MIN_LABEL_SAMPLES).tolist()
    blunt = (~noise.informative).tolist()
    reason = tuple(
        FEW_REASON if a else COMMON_REASON if b else UNINFORMATIVE_REASON if c else ""
        for a, b, c in zip(few, common, blunt, strict=True)
    )
    unknown = torch.tensor([bool(one) for one in reason], device=x.device)
    wrong = torch.minimum(wrong, ceiling.to(wrong)).masked_fill(unknown, torch.nan)
    missing, superfluous = (
        share.float().masked_fill(unknown, torch.nan) for share in (noise.missing, noise.superfluous)
    )
    return LabelSetQuality(has, wrong, missing.to(x), superfluous.to(x), reason)


def cluster_counts(each: LabelSetEvidence) -> tuple[Float[Tensor, "L"], Float[Tensor, "L"]]:
    """Return how many samples have each label and how many have it not; near copies count once."""
    count = int(each.cluster.max()) + 1
    some = torch.zeros(count, each.labels, device=each.x.device).index_add_(0, each.cluster, each.has)
    size = torch.bincount(each.cluster, minlength=count)[:, None]
    return (some > 0).sum(0).float(), (some < size).sum(0).float()


def as_matrix(label_sets: tuple[tuple[int, ...], ...], y: Int[np.ndarray, "N"], labels: int) -> Bool[Tensor, "N L"]:
    """Return whether each sample has each label, from the numbers of the labels of every class."""
    table = torch.zeros(len(label_sets), labels, dtype=torch.bool)
    row = [c for c, one in enumerate(label_sets) for _ in one]
    table[row, [label for one in label_sets for label in one]] = True
    return table[torch.as_tensor(y)]
