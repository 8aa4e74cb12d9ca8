"""Error overlap: the classes with the most retrieval errors in each of several runs, and the share that runs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError


def most_wrong(
    wrong: Bool[Tensor, "N"], y: Int[Tensor, "N"], k: int = 10, by: str = "count", least: int = 2
) -> Int[Tensor, "k"]:
    """Return the k classes with the most wrong samples, worst first; fewer if fewer classes have any.

    Ties are ordered by the other criterion, then by label.

    Args:
        by: "count", as in the paper, which favours large classes; or "rate", the share of the class that is wrong.
        least: with "rate", smallest size of a class: in a class of one sample, one error would be a rate of 1.
    """
    if by not in ("count", "rate") or k < 1 or wrong.shape != y.shape:
        raise LikewiseError(
            "most_wrong: by must be 'count' or 'rate', k >= 1, and `wrong` must have one entry for each label, "
            f"got by='{by}', k={k}, {len(wrong)} entries and {len(y)} labels"
        )
    label, own, size = y.unique(return_inverse=True, return_counts=True)
    count = torch.bincount(own[wrong], minlength=len(label))
    rate = count.double() / size
    first, second = (count, rate) if by == "count" else (rate, count)
    order = second.argsort(descending=True, stable=True)
    order = order[first[order].argsort(descending=True, stable=True)]
    named = (count > 0) & ((size >= least) | (by == "count"))
    return label[order[named[order]][:k]]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Overlap of the worst classes of R runs.

    Attributes:
        matrix: share of the worst classes that two runs have in common.
        within, between: its mean over pairs of runs of the same method, and of different methods; NaN if there are none.
        chance: the mean for classes drawn at random.
        label: the L classes that are among the worst of any run.
        heat: mask of the classes in `label` that are among the worst of each run.
    """

    matrix: Float[Tensor, "R R"]
    within: float
    between: float
    chance: float
    label: Int[Tensor, "L"]
    heat: Bool[Tensor, "R L"]


def error_overlap(worst: Sequence[Int[Tensor, "_"]], methods: Sequence[str], classes: int) -> Overlap:
    """Return the overlap of the worst classes for every pair of runs.

    Formula: 2 |A and B| / (|A| + |B|), which is |A and B| / k where both name k classes;
        by chance 2 |A| |B| / (|A| + |B|) / classes

    Args:
        worst: the worst classes of every run, without repetition.
        methods: the training method of every run.
        classes: number of test classes.
    """
    if len(worst) != len(methods) or len(worst) < 2:
        raise LikewiseError(
            f"error_overlap: two runs or more with a method each must be given, got  {len(worst)} runs and {len(methods)} methods"
        )
    short = [i for i, some in enumerate(worst) if not len(some) or len(some.unique()) < len(some)]
    if short:
        raise LikewiseError(
            f"error_overlap: a run must name one class or more, none twice, but run {short[0]} does not"
        )
    label = torch.cat(list(worst)).unique()
    if len(label) > classes:
        raise LikewiseError(
            f"error_overlap: classes must count all classes, got {classes} where runs name {len(label)}"
        )
    heat = torch.stack([torch.isin(label, some) for some in worst])
    size = heat.sum(1).double()
    both = size[:, None] + size
    matrix = 2 * (heat.double() @ heat.double().T) / both
    chance = 2 * size[:, None] * size / both / classes
    number = {name: i for i, name in enumerate(dict.fromkeys(methods))}
    method = torch.tensor([number[name] for name in methods], device=label.device)
    same, pair = method[:, None] == method, torch.ones_like(matrix, dtype=torch.bool).triu(1)
    means = (matrix[pair & same], matrix[pair & ~same], chance[pair])
    return Overlap(matrix, *(float(values.mean()) for values in means), label, heat)  # pyright: ignore[reportCallIssue]
