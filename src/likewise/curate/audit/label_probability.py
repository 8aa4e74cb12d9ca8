"""Probability that each label is right, and the most probable other label, from features of the whole data set."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.curate.audit.label_scores import check_labelled
from likewise.curate.audit.records import LabelQuality
from likewise.labels.label_draws import CANDIDATES_COUNT, Candidates, keep_candidates
from likewise.labels.label_evidence import LabelEvidence, discriminate
from likewise.labels.off_topic import off_topic

UNINFORMATIVE_REASON = "the features explain the labels no better than the class frequencies do"
"""Reason why no label of a data set can be scored."""

ALONE_REASON = "the only sample of its class, apart from copies"
"""Reason why the label of a single sample cannot be scored."""


@torch.no_grad()
def score_labels(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], seed: int = 0, group: Int[Tensor, "N"] | None = None,
    part: Int[Tensor, "N"] | None = None,
) -> LabelQuality:  # fmt: skip
    """Return the probability that each label is right, and the label that is suggested if it is wrong.

    Formula: the posterior of `Noise`: P(class | features, given label), from class densities and votes of neighbours that no
        sample's own label affects. score = posterior of the given label; the suggested label has the highest posterior of the
        others, confidence = its posterior / (1 - score), margin = its lead over the next one / (1 - score).
    A class of one sample is a candidate for that sample only.
    Differs: it is ours. Where the features explain labels no better than class frequencies do, and for samples without another
        sample of their class, the score is NaN: unknown.

    Args:
        x: features, or embeddings. Features of a network that was not trained with these labels have learned no wrong label.
        y: labels, any integers.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
        part: number of the split of every sample. Off-topic samples are searched in each split alone: a network separates the
            classes that it was trained with better than others, which would seem off-topic beside them.
    """
    check_labelled("score_labels", x, y)
    label, y = y.unique(return_inverse=True)
    if len(label) < 2:
        raise LikewiseError(
            f"score_labels: labels must have two classes or more, got only class {int(label[0])}; add another class"
        )
    x = at_least_float32(x).float()
    with full_precision_matmul(x):
        each, noise = discriminate(x, y, len(label), seed=seed, group=group)
        score, density = torch.full((2, len(y)), torch.nan, dtype=torch.float64, device=x.device)
        sure, ahead, suggested = torch.zeros_like(score), torch.zeros_like(score), y.clone()
        outside = off_topic_by_part(x, y, len(label), seed, part)
        alone = alone_in_class(each, y)
        width = min(CANDIDATES_COUNT, len(label))
        kept = Candidates(y[:, None].expand(-1, width).clone(), score.new_zeros(len(y), width))
        kept.probability[:, 0] = 1  # of labels that cannot be scored nothing else is known
        lone = torch.bincount(y[alone], minlength=len(label)) > 0
        for rows in each.blocks() if noise.informative else ():
            scores, own = each.scores(rows).double(), y[rows, None]
            q = among_candidates(noise.posterior(scores, y[rows]), own, lone)
            score[rows] = q.gather(1, own)[:, 0]
            known = rows[~alone[rows]]
            kept.label[known], kept.probability[known] = keep_candidates(q[~alone[rows]], y[known], width)
            by_density = noise._replace(weight=noise.weight[:1]).probabilities(scores[:1])
            density[rows] = by_density.gather(1, own)[:, 0]
            top = q.scatter(1, own, 0).topk(min(2, q.shape[1] - 1), 1)
            wrong = (1 - score[rows]).clamp_min(1e-12)
            suggested[rows] = top.indices[:, 0].where(
                top.values[:, 0] > 0, y[rows]
            )  # the label itself: there is no other
            sure[rows] = (top.values[:, 0] / wrong).clamp_max(1)
            ahead[rows] = sure[rows] - (top.values[:, 1] / wrong if top.values.shape[1] > 1 else 0)
    bounded = torch.minimum(score, 1 - outside.double())  # the label of an image that fits no class cannot be right
    score = score.where(outside < 0.5, bounded)
    usable = noise.informative
    unknown = alone | (not usable)
    reason = UNINFORMATIVE_REASON if not usable else ALONE_REASON if bool(alone.any()) else ""
    shares = (noise.any, noise.similar) if usable else (math.nan, math.nan)
    single = {"density": density.masked_fill(unknown, torch.nan)}
    candidates = Candidates(label[kept.label], kept.probability)
    return LabelQuality(score, single, label[suggested], sure, ahead, *shares, unknown, reason, outside, candidates)


def among_candidates(q: Float[Tensor, "n C"], own: Int[Tensor, "n 1"], lone: Bool[Tensor, "C"]) -> Float[Tensor, "n C"]:
    """Return the posterior among the candidates of every sample: its given class, and the classes of two samples or more.

    One sample does not show what else belongs to its class.

    Args:
        own: given class of each sample.
        lone: classes of one sample, apart from copies.
    """
    kept = q.masked_fill(lone, 0).scatter(1, own, q.gather(1, own))
    return kept / kept.sum(1, keepdim=True).clamp_min(1e-30)


def off_topic_by_part(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, seed: int, part: Int[Tensor, "N"] | None
) -> Float[Tensor, "N"]:
    """Return the probability that each sample fits no class, among the samples of its part."""
    found = x.new_zeros(len(x))
    for number in [None] if part is None else part.unique().tolist():
        rows = torch.arange(len(x), device=x.device) if number is None else (part == number).nonzero()[:, 0]
        if len(rows) > 1:
            found[rows] = off_topic(x[rows], y[rows], classes, seed).probability.to(found)
    return found


def alone_in_class(each: LabelEvidence, y: Int[Tensor, "N"]) -> Bool[Tensor, "N"]:
    """Return for which samples all samples of the same class are in the same cluster of copies."""
    classes = int(y.max()) + 1
    pair = (each.cluster * classes + y).unique()
    return torch.bincount(pair % classes, minlength=classes)[y] == 1
