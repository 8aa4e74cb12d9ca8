"""Contract check for relevances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from likewise.core.contracts import Relevance
from likewise.core.types import LikewiseError

MAX_CHECK_IDS = 24
"""Number of ids that the check compares with each other."""


def check_relevance(make: Callable[[], Relevance]) -> None:
    """Check a relevance: values from 0 to 1 or NaN, the same block by block, masks by the threshold, and all that it gives.

    Args:
        make: returns a new relevance; it may be of any number of ids.
    """
    relevance = make()
    assert relevance.ids > 0 and 0 < relevance.threshold <= 1, (
        "ids and threshold must be above 0, the threshold at most 1"
    )
    assert set(relevance.gives) <= {"pairs", "targets", "triplets"} and relevance.gives, (
        "gives has an unknown name, or none"
    )
    assert relevance.by in ("class", "sample"), "by must be class or sample"
    assert not relevance.state_dict(), "buffers must not be persistent: a checkpoint does not store the relevance"
    loose = [name for name, value in vars(relevance).items() if isinstance(value, Tensor)]
    assert not loose, f"tensors must be buffers, so that they move to the device: {', '.join(loose)}"
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randperm(relevance.ids, generator=g)[:MAX_CHECK_IDS] for _ in range(2))
    a = torch.cat([a, a[:1]])  # an id may occur twice
    _check_values(relevance, a, b)
    assert torch.equal(make()(a, b).nan_to_num(2), relevance(a, b).nan_to_num(2)), (
        "two relevances gave different values"
    )
    _check_pairs(relevance, a, b)
    _check_targets(relevance, a)
    _check_triplets(relevance, a)


def _check_values(relevance: Relevance, a: Tensor, b: Tensor) -> None:
    value = relevance(a, b)
    assert value.shape == (len(a), len(b)), f"{len(a)} and {len(b)} ids gave shape {tuple(value.shape)}"
    assert value.is_floating_point() and value.device == a.device, "values must be floats on the device of the ids"
    assert not value.requires_grad, "a relevance has no gradient"
    known = value[~value.isnan()]
    assert ((known >= 0) & (known <= 1)).all(), "a value outside [0, 1]"
    rows = torch.cat([relevance(part, b) for part in a.split(5)])
    columns = torch.cat([relevance(a, part) for part in b.split(5)], 1)
    for name, again in (("rows", rows), ("columns", columns)):
        assert torch.equal(again.nan_to_num(2), value.nan_to_num(2)), (
            f"blocks of {name} gave other values than the whole"
        )
    if relevance.symmetric:
        assert torch.equal(relevance(b, a).T.nan_to_num(2), value.nan_to_num(2)), "it is declared symmetric, but is not"


def _check_pairs(relevance: Relevance, a: Tensor, b: Tensor) -> None:
    value, pairs = relevance(a, b), relevance.pairs(a, b)
    assert pairs.value is not None and not pairs.value.isnan().any(), "Pairs.value must hold numbers"
    assert torch.equal(pairs.pos, value >= relevance.threshold), "positives must be the pairs at or above the threshold"
    assert torch.equal(pairs.neg, value < relevance.threshold), "negatives must be the known pairs below the threshold"


def _check_targets(relevance: Relevance, y: Tensor) -> None:
    if "targets" not in relevance.gives:
        assert relevance.width is None, "width must be None without targets"
        _must_raise(relevance.targets, y, "targets")
        return
    target = relevance.targets(y)
    assert target.shape == (len(y), relevance.width), "targets must have a row per sample and `width` columns"
    assert target.is_floating_point() and ((target >= 0) & (target <= 1)).all(), "a target that is no number in [0, 1]"
    assert torch.equal(torch.cat([relevance.targets(part) for part in y.split(5)]), target), "blocks gave other targets"


def _check_triplets(relevance: Relevance, y: Tensor) -> None:
    if "triplets" not in relevance.gives:
        _must_raise(relevance.triplets, y, "triplets")
        return
    t = relevance.triplets(y)
    assert len({len(v) for v in (t.a, t.p, t.n, t.valid, t.pull)}) == 1, "fields of the triplets differ in length"
    for index in (t.a, t.p, t.n):
        assert ((index >= 0) & (index < len(y))).all(), "a triplet names a row that is not in the batch"
    a, p, n = (y[index[t.valid]] for index in (t.a, t.p, t.n))
    assert ((a != p) & (a != n) & (p != n)).all(), "a triplet must have three different samples"
    other = relevance.triplets(y.flip(0))
    assert len(other.a) == len(t.a), "the number of triplets must not depend on the samples, only on their number"


def _must_raise(give: Callable[[Tensor], object], y: Tensor, name: str) -> None:
    try:
        give(y)
    except LikewiseError:
        return
    raise AssertionError(f"gives does not name {name}, so they must be a LikewiseError")
