"""Do models fail at the same classes? The most wrong classes of several runs, and how far they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.errors import LikewiseError


def most_wrong(
    wrong: Bool[Tensor, "N"], y: Int[Tensor, "N"], k: int = 10, by: str = "count", least: int = 2
) -> Int[Tensor, "k"]:
    """The k classes with most wrong samples, the worst first; fewer where fewer have any. Equals go by the other number, then
    by label.

    Args:
        by: "count", as in the paper, which favours large classes; or "rate", the share of the class that is wrong.
        least: with "rate", classes of fewer samples are left out: one error would make them the worst of all.
    """
    if by not in ("count", "rate") or k < 1 or wrong.shape != y.shape:
        raise LikewiseError(
            "most_wrong: by must be 'count' or 'rate', k >= 1, and each label must be wrong or not, "
            f"got by='{by}', k={k}, {len(wrong)} answers and {len(y)} labels"
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
    """How far runs fail at the same classes.

    `matrix`: the share of classes that two runs have in common; `within` and `between`: its mean over pairs of runs of one method
    and of two (NaN: there are none); `chance`: the same for classes drawn at random. `heat`: which of the classes `label`, those
    that any run names, each run names.
    """

    matrix: Float[Tensor, "R R"]
    within: float
    between: float
    chance: float
    label: Int[Tensor, "L"]
    heat: Bool[Tensor, "R L"]


def error_overlap(worst: Sequence[Int[Tensor, "_"]], methods: Sequence[str], classes: int) -> Overlap:
    """Compare the most wrong classes of runs, two at a time.

    Formula: 2 |A and B| / (|A| + |B|), which is |A and B| / k where both name k classes;
        by chance 2 |A| |B| / (|A| + |B|) / classes

    Args:
        worst: for every run its most wrong classes, none of them twice.
        methods: for every run what it was trained with.
        classes: how many there are to fail at.
    """
    if len(worst) != len(methods) or len(worst) < 2:
        raise LikewiseError(
            f"error_overlap: two runs or more with a method each must be given, got {len(worst)} and {len(methods)} methods"
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
    return Overlap(matrix, *(float(part.mean()) for part in means), label, heat)  # pyright: ignore[reportCallIssue]
