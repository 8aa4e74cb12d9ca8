"""How well a score finds wrong labels, where the truth is known: labels are inspected from the lowest score on.

Equal scores stand in no order: a number is what a random order of equals gives on average, but AP takes equals as one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.numerics.bootstrap import BLOCK, Interval

POINTS = 100
"""Steps of the curve."""


class Detection(NamedTuple):
    """What inspecting by a score finds. NaN without a wrong label; AUROC also without a right one."""

    AUROC: float  # chance that a wrong label has a lower score than a right one, a tie counting half
    AP: float  # average precision: the precision when a wrong label is found, on average over them
    recall: float  # share of the wrong labels that is found when as many were inspected as are wrong
    curve: list[list[float]]  # share inspected, share of the wrong labels found


class RelabelAccuracy(NamedTuple):
    """Shares of wrong labels for which the true one is suggested. NaN where there is none to count."""

    top1: float
    lenient: float


class Inspected(NamedTuple):
    """Of all samples, or of those with wrong labels: how many wrong and right ones come before their equals, and with them.

    In a redrawn set a sample stands several times, or not at all.
    """

    wrong: Float[Tensor, "*draws n"]  # how often the sample stands there, if its label is wrong
    wrong_before: Float[Tensor, "*draws n"]
    wrong_with: Float[Tensor, "*draws n"]
    right_before: Float[Tensor, "*draws n"]
    right_with: Float[Tensor, "*draws n"]
    wrongs: Float[Tensor, "*draws 1"]  # of all
    rights: Float[Tensor, "*draws 1"]


class _Order(NamedTuple):
    """Samples from the lowest score on; and of some of them, where they stand, and where their equals begin and end."""

    sample: Int[Tensor, "N"]
    own: Int[Tensor, "n"]
    first: Int[Tensor, "n"]
    beyond: Int[Tensor, "n"]


def detection(score: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> Detection:
    """How well a low score finds wrong labels.

    Args:
        score: low = suspect.
        wrong: which labels are wrong in truth.
    """
    _must_fit("detection", wrong, score=score)
    seen = inspect(score.double(), wrong)
    steps = torch.linspace(0, 1, POINTS + 1, dtype=torch.float64).tolist()
    curve = [[share, float(found(seen, share * len(wrong)))] for share in steps]
    return Detection(*(float(how(seen)) for how in (auroc, average_precision, recall)), curve)  # pyright: ignore[reportCallIssue]


def inspect(score: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> Inspected:
    """What the numbers below are made of, in the score's kind of numbers; an accelerator does not wait."""
    return _count(_order(score), wrong, torch.ones_like(wrong, dtype=torch.int64), score.dtype)


def auroc(seen: Inspected) -> Float[Tensor, "*draws"]:
    """Chance that a wrong label has a lower score than a right one.

    Formula: P(score of a wrong one < that of a right one), ties counting half
    """
    behind = seen.rights - (seen.right_before + seen.right_with) / 2
    return (seen.wrong * (behind / seen.rights)).sum(-1) / seen.wrongs[..., 0]


def average_precision(seen: Inspected) -> Float[Tensor, "*draws"]:
    """Formula: mean over wrong labels of |wrong with a score up to its own| / |all with a score up to its own|"""
    precision = seen.wrong_with / (seen.wrong_with + seen.right_with)
    return (seen.wrong * precision).where(seen.wrong > 0, 0.0).sum(-1) / seen.wrongs[..., 0]


def recall(seen: Inspected) -> Float[Tensor, "*draws"]:
    """What is found when as many were inspected as are wrong."""
    return found(seen, seen.wrongs)


def found(seen: Inspected, inspected: float | Float[Tensor, "*draws 1"]) -> Float[Tensor, "*draws"]:
    """Share of the wrong labels found among so many, on average over the orders of equals. In between it goes straight on.

    Formula: mean over wrong labels of the chance to be inspected: of e equals behind b others, (inspected - b) / e, within 0, 1
    """
    before = seen.wrong_before + seen.right_before
    chance = ((inspected - before) / (seen.wrong_with + seen.right_with - before)).clamp(0, 1)
    return (seen.wrong * chance).where(seen.wrong > 0, 0.0).sum(-1) / seen.wrongs[..., 0]


MEASURES = {"AUROC": auroc, "AP": average_precision, "recall": recall}


def paired_bootstrap(
    a: Float[Tensor, "N"],
    b: Float[Tensor, "N"],
    wrong: Bool[Tensor, "N"],
    metric: Literal["AUROC", "AP", "recall"] = "AP",
    *,
    strata: Int[Tensor, "N"] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Whether score b finds wrong labels better than a: metric of b - metric of a, and its 95 % interval over redrawn samples.

    Both scores see the same draws, so what makes samples hard for both cancels out. Wrong and right labels are redrawn apart:
    how many are wrong stays as it is.

    Args:
        strata: groups that are redrawn apart too, such as classes or parts.
    """
    _must_fit("paired_bootstrap", wrong, a=a, b=b)
    if metric not in MEASURES:
        raise LikewiseError(f"paired_bootstrap: metric must be one of {', '.join(MEASURES)}, got '{metric}'")
    if resamples < 100:
        raise LikewiseError(f"paired_bootstrap: resamples must be 100 or more for an interval's ends, got {resamples}")
    if strata is not None and strata.shape != wrong.shape:
        raise LikewiseError(
            f"paired_bootstrap: strata must be one number a sample, got {tuple(strata.shape)} for {len(wrong)} samples"
        )
    if not wrong.any() or wrong.all():
        raise LikewiseError(
            f"paired_bootstrap: there must be wrong and right labels, got {int(wrong.sum())} wrong ones of {len(wrong)}"
        )
    wrong, orders = wrong.cpu(), []
    for score in (a, b):
        order = _order(score.double().cpu())
        matter = wrong[order.sample]  # the right ones are counted, and that is all
        orders.append(_Order(order.sample, *(part[matter] for part in order[1:])))

    def better(times: Int[Tensor, "*draws N"]) -> Float[Tensor, "*draws"]:
        of_a, of_b = (MEASURES[metric](_count(order, wrong, times, torch.float64)) for order in orders)
        return of_b - of_a

    group = wrong.long() if strata is None else 2 * strata.cpu().unique(return_inverse=True)[1] + wrong
    drawn = torch.cat([better(times) for times in _redraw(group.numpy(), resamples, seed)])
    low, high = np.quantile(drawn.numpy(), [0.025, 0.975])
    return Interval(float(better(torch.ones_like(group))), float(low), float(high), len(wrong))


def relabel_accuracy(
    first: Int[Tensor, "N"],
    second: Int[Tensor, "N"],
    true: Int[Tensor, "N"],
    given: Int[Tensor, "N"],
    flagged: Bool[Tensor, "N"],
    harmful: Bool[Tensor, "N"] | None = None,
) -> RelabelAccuracy:
    """How often the true label is suggested for wrong ones that were flagged, and the same by a paper's lenient count.

    Formula: top1 = P(first = true | wrong, flagged),
        lenient = P(first = true, or first = given and second = true | wrong, harmful)
    Paper: Liu et al., empirical influence functions, count the second way.

    Args:
        first: the label suggested for each sample; the given one may be among the candidates.
        second: the next best; it matters only where `first` is the label given, so the best other label will do.
        flagged: whose label is suspected.
        harmful: those that the lenient count is over, in the paper samples with a harmful influence; None: those flagged.
    """
    harmful = flagged if harmful is None else harmful
    shapes = {tuple(part.shape) for part in (first, second, true, given, flagged, harmful)}
    if len(shapes) > 1:
        raise LikewiseError(f"relabel_accuracy: one entry a sample is wanted everywhere, got shapes {sorted(shapes)}")
    wrong, right = true != given, first == true
    lenient = right | ((first == given) & (second == true))
    return RelabelAccuracy(
        *(float(hit[wrong & of].double().mean()) for hit, of in ((right, flagged), (lenient, harmful)))
    )


def _must_fit(owner: str, wrong: Tensor, **scores: Tensor) -> None:
    for name, score in scores.items():
        if score.shape != wrong.shape or wrong.ndim != 1 or wrong.dtype != torch.bool:
            raise LikewiseError(
                f"{owner}: one {name} and one bool a sample are wanted, got {name} {tuple(score.shape)} and wrong "
                f"{tuple(wrong.shape)} of {wrong.dtype}"
            )
        if bad := int(score.isnan().sum()):
            raise LikewiseError(f"{owner}: {name} must be a number for every sample, but {bad} of {len(score)} are NaN")


def _order(score: Float[Tensor, "N"]) -> _Order:
    value, sample = score.sort()
    first, beyond = (torch.searchsorted(value, value, right=right) for right in (False, True))
    return _Order(sample, torch.arange(len(score), device=score.device), first, beyond)


def _count(order: _Order, wrong: Bool[Tensor, "N"], times: Int[Tensor, "*draws N"], dtype: torch.dtype) -> Inspected:
    """In whole numbers first, so that sums are exact."""
    times, wrong = times[..., order.sample], wrong[order.sample]
    upto = [torch.nn.functional.pad((times * kind).cumsum(-1), (1, 0)) for kind in (wrong, ~wrong)]
    either = [sums[..., edge] for sums in upto for edge in (order.first, order.beyond)]
    parts = (times * wrong)[..., order.own], *either, *(sums[..., -1:] for sums in upto)
    return Inspected(*(part.to(dtype) for part in parts))


def _redraw(group: Int[np.ndarray, "N"], resamples: int, seed: int) -> Iterator[Int[Tensor, "draws N"]]:
    """How often each sample is drawn, a block of draws at a time; every group is redrawn from itself."""
    rng, n, members = np.random.default_rng(seed), len(group), np.argsort(group, kind="stable")
    size = np.bincount(group)[group[members]]
    start = np.searchsorted(group[members], group[members])
    for first in range(0, resamples, many := max(1, BLOCK // n)):
        here = min(many, resamples - first)
        drawn = members[start + rng.integers(size, size=(here, n))] + n * np.arange(here)[:, None]
        yield torch.as_tensor(np.bincount(drawn.ravel(), minlength=here * n).reshape(here, n))
