"""Metrics of how well a label score finds wrong labels when the true labels are known. Samples are inspected by ascending score.

For equal scores the metrics are averages over random orders, except AP, which treats equal scores as one step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError

CURVE_POINTS = 100
"""Number of steps of the detection curve."""


class Detection(NamedTuple):
    """Detection metrics of a score. NaN without a wrong label; AUROC also without a right label."""

    AUROC: float  # probability that a wrong label has a lower score than a right one; a tie counts half
    AP: float  # average precision: mean over wrong labels of the precision when that label is found
    recall: float  # share of the wrong labels found after inspecting as many samples as there are wrong labels
    curve: list[list[float]]  # share of the samples inspected, share of the wrong labels found


class RelabelAccuracy(NamedTuple):
    """Shares of wrong labels for which the true label is suggested. NaN without wrong labels."""

    top1: float
    lenient: float


class TieCounts(NamedTuple):
    """Numbers of wrong and right labels with a lower score than a sample (before), and with a lower or equal score (with).

    The n samples are all samples, or those with wrong labels. Each draw leaves some samples out.
    """

    wrong: Float[Tensor, "*draws n"]  # how often the draw contains the sample, if its label is wrong, else 0
    wrong_before: Float[Tensor, "*draws n"]
    wrong_with: Float[Tensor, "*draws n"]
    right_before: Float[Tensor, "*draws n"]
    right_with: Float[Tensor, "*draws n"]
    wrongs: Float[Tensor, "*draws 1"]  # total number of wrong labels
    rights: Float[Tensor, "*draws 1"]


class _Order(NamedTuple):
    """Samples by ascending score; and for some of them their positions, and the range of positions with an equal score."""

    sample: Int[Tensor, "N"]
    own: Int[Tensor, "n"]
    first: Int[Tensor, "n"]
    beyond: Int[Tensor, "n"]


def detection(score: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> Detection:
    """Return how well a low score finds wrong labels.

    Args:
        score: label score; low means probably wrong.
        wrong: mask of the labels that are truly wrong.
    """
    _check_shapes("detection", wrong, score=score)
    ties = count_ties(score.double(), wrong)
    steps = torch.linspace(0, 1, CURVE_POINTS + 1, dtype=torch.float64).tolist()
    curve = [[share, float(found_share(ties, share * len(wrong)))] for share in steps]
    return Detection(*(float(metric(ties)) for metric in (auroc, average_precision, recall)), curve)  # pyright: ignore[reportCallIssue]


def count_ties(score: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> TieCounts:
    """Return the counts from which the metrics below are computed, in the dtype of the score, without a device sync."""
    return _count(_order(score), wrong, torch.ones_like(wrong, dtype=torch.int64), score.dtype)


def auroc(ties: TieCounts) -> Float[Tensor, "*draws"]:
    """Return the probability that a wrong label has a lower score than a right label.

    Formula: P(score of a wrong label < score of a right label), ties count half
    """
    behind = ties.rights - (ties.right_before + ties.right_with) / 2
    return (ties.wrong * (behind / ties.rights)).sum(-1) / ties.wrongs[..., 0]


def average_precision(ties: TieCounts) -> Float[Tensor, "*draws"]:
    """Return the mean over wrong labels of |wrong labels with a score <= its own| / |labels with a score <= its own|."""
    precision = ties.wrong_with / (ties.wrong_with + ties.right_with)
    return (ties.wrong * precision).where(ties.wrong > 0, 0.0).sum(-1) / ties.wrongs[..., 0]


def recall(ties: TieCounts) -> Float[Tensor, "*draws"]:
    """Return the share of wrong labels found after inspecting as many samples as there are wrong labels."""
    return found_share(ties, ties.wrongs)


def found_share(ties: TieCounts, inspected: float | Float[Tensor, "*draws 1"]) -> Float[Tensor, "*draws"]:
    """Return the share of the wrong labels among the first `inspected` samples, averaged over the orders of equal scores.

    `inspected` need not be an integer: the share is interpolated linearly.
    Formula: mean over wrong labels of the probability to be inspected: with e equal scores after b lower ones, it is
        (inspected - b) / e, clipped to [0, 1]
    """
    before = ties.wrong_before + ties.right_before
    chance = ((inspected - before) / (ties.wrong_with + ties.right_with - before)).clamp(0, 1)
    return (ties.wrong * chance).where(ties.wrong > 0, 0.0).sum(-1) / ties.wrongs[..., 0]


def relabel_accuracy(
    first: Int[Tensor, "N"],
    second: Int[Tensor, "N"],
    true: Int[Tensor, "N"],
    given: Int[Tensor, "N"],
    flagged: Bool[Tensor, "N"],
    harmful: Bool[Tensor, "N"] | None = None,
) -> RelabelAccuracy:
    """Return how often the true label is suggested for flagged wrong labels, and the same by a paper's lenient count.

    Formula: top1 = P(first = true | wrong, flagged),
        lenient = P(first = true, or first = given and second = true | wrong, harmful)
    Paper: Liu et al., empirical influence functions, use the lenient count.

    Args:
        first: the suggested label of each sample; it may be the given label.
        second: the second suggestion; it is only used where `first` is the given label, so the best other label is enough.
        true: true labels.
        given: given labels.
        flagged: mask of the flagged labels.
        harmful: mask of the samples of the lenient count, in the paper those with a harmful influence; None: `flagged`.
    """
    harmful = flagged if harmful is None else harmful
    wrong, right = true != given, first == true
    lenient = right | ((first == given) & (second == true))
    return RelabelAccuracy(
        *(float(hit[wrong & of].double().mean()) for hit, of in ((right, flagged), (lenient, harmful)))
    )


def _check_shapes(owner: str, wrong: Tensor, **scores: Tensor) -> None:
    for name, score in scores.items():
        if score.shape != wrong.shape or wrong.ndim != 1 or wrong.dtype != torch.bool:
            raise LikewiseError(
                f"{owner}: {name} and wrong must have one entry per sample, and wrong must be bool, got {name} "
                f"{tuple(score.shape)} and wrong {tuple(wrong.shape)} of {wrong.dtype}"
            )
        if bad := int(score.isnan().sum()):
            raise LikewiseError(f"{owner}: {name} must be a number for every sample, but {bad} of {len(score)} are NaN")


def _order(score: Float[Tensor, "N"]) -> _Order:
    value, sample = score.sort()
    first, beyond = (torch.searchsorted(value, value, right=right) for right in (False, True))
    return _Order(sample, torch.arange(len(score), device=score.device), first, beyond)


def _count(order: _Order, wrong: Bool[Tensor, "N"], times: Int[Tensor, "*draws N"], dtype: torch.dtype) -> TieCounts:
    """Return the counts of wrong and right labels around each sample, summed as integers, which is exact."""
    times, wrong = times[..., order.sample], wrong[order.sample]
    upto = [torch.nn.functional.pad((times * kind).cumsum(-1), (1, 0)) for kind in (wrong, ~wrong)]
    either = [sums[..., edge] for sums in upto for edge in (order.first, order.beyond)]
    counts = (times * wrong)[..., order.own], *either, *(sums[..., -1:] for sums in upto)
    return TieCounts(*(count.to(dtype) for count in counts))
