"""Metrics for pairs: are these two the same thing? From given pairs, or over all pairs of a set of embeddings.

A pair is accepted when its similarity reaches a threshold. TAR (true accept rate, recall) is the share of the same
pairs that are accepted, FAR (false accept rate) that of the different pairs, and precision the share of same pairs
among the accepted.
Names: `AUROC`, `EER`, `TAR@FAR=x`, `TAR@P=x` and `threshold@P=x`, over all pairs of a set, by cosine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.errors import LikewiseError
from likewise.metrics.spectrum import check
from likewise.similarity import full_products

NAMES = {
    "AUROC": "chance that a same pair is more alike than a different pair, a tie counting half",
    "EER": "equal error rate: share of different pairs accepted = share of same pairs refused; low is good",
    "TAR@FAR=x": "share of same pairs accepted where at most a share x (as in 1e-3) of different pairs is",
    "TAR@P=x": "share of same pairs accepted where a share x (as in 0.99) of the accepted pairs is same",
    "threshold@P=x": "lowest cosine from which on a share x (as in 0.99) of the pairs is same",
}

FEW = 2**21
"""Pairs of a set that are compared one by one, at most (2,048 rows, 150 MB); of larger sets they are counted in bins."""

STEP = 2.0**-36
"""What cosines of few pairs are rounded to, in float64: ten thousand times their error, so that equal ones tie."""

BINS = 2**18
"""Bins of the cosine from -1 to 1 when all pairs of a large set are counted, each 7.6e-6 wide."""

TILE = 2048
"""Rows compared with as many others at a time: about 50 MB of cosines, bins and masks beside a float32 copy of z."""


class Roc(NamedTuple):
    """What every threshold accepts, from the strictest (infinite: nothing) down to the lowest (everything)."""

    far: Float[Tensor, "P"]
    tar: Float[Tensor, "P"]
    threshold: Float[Tensor, "P"]


class Operating(NamedTuple):
    """A threshold and what it does: accept pairs whose similarity is at least this."""

    threshold: float
    precision: float
    recall: float  # TAR
    far: float


class _Accepted(NamedTuple):
    """How many pairs each threshold accepts, thresholds descending from infinity."""

    threshold: Float[Tensor, "P"]
    same: Int[Tensor, "P"]
    different: Int[Tensor, "P"]


def roc(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"]) -> Roc:
    """The exact curve of these pairs; equal similarities are one step. Rates are NaN where there is no such pair.

    Formula: TAR(t) = |{same, sim >= t}| / |{same}|, FAR(t) = |{different, sim >= t}| / |{different}|
    """
    return _rates(_accepted(sim, same))


def roc_of_set(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Roc:
    """The curve of all N (N - 1) / 2 pairs, by cosine, same = of one class; in bounded memory.

    Up to 2,048 rows, cosines are float64 products rounded to 2^-36: equal vectors tie, and the curve is exact but for cosines
    that differ by less than 1.5e-11. In larger sets they are float32 products, right to about 1e-6, counted in bins 7.6e-6 wide.
    Thresholds are then lower edges of bins, so a TAR found with them is never above the exact one, but for pairs within 1e-6 of
    an edge; the area is off by no more than the share of couples, a same and a different pair, that are closer than 1e-5.
    """
    return _rates(_count_pairs(z, y))


def auroc(curve: Roc) -> float:
    """Area under the curve: the chance that a same pair is more alike than a different one, a tie counting half.

    Formula: sum_t (FAR_t - FAR_{t-1}) (TAR_t + TAR_{t-1}) / 2
    """
    return float(torch.trapezoid(curve.tar, curve.far))


def equal_error_rate(curve: Roc) -> float:
    """The rate where as many different pairs are accepted as same pairs refused, on straight lines between steps.

    Formula: FAR(t) = 1 - TAR(t)
    """
    if _undefined(curve):
        return math.nan
    gap = curve.far + curve.tar - 1  # rises from -1 to 1, at every step
    at = int((gap < 0).sum())
    share = gap[at - 1] / (gap[at - 1] - gap[at])
    return float(torch.lerp(curve.far[at - 1], curve.far[at], share))


def tar_at_far(curve: Roc, far: float) -> float:
    """The largest TAR whose FAR is at most this.

    Below 1 / (number of different pairs) that means: no false accept at all.
    """
    _must_be_share("tar_at_far", "far", far)
    return math.nan if _undefined(curve) else float(curve.tar[curve.far <= far][-1])


def threshold_for(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"], precision: float) -> Operating:
    """The lowest threshold whose accepted pairs have at least this precision: of all such, it has the largest recall.

    Where no threshold has it, nothing is accepted: recall and FAR are 0, threshold and precision NaN. All are NaN where
    there is no same pair, or no different one.
    """
    _must_be_share("threshold_for", "precision", precision)
    return _operate(_accepted(sim, same), precision)


def calibrate(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], precision: float = 0.99) -> Operating:
    """The cosine from which on two samples may be called the same, as `threshold_for` over all pairs of a set.

    Precision depends on how many pairs are same: take rows that are mixed as they will be in use, and that were not
    trained on. It is as exact as `roc_of_set`.
    """
    _must_be_share("calibrate", "precision", precision)
    return _operate(_count_pairs(z, y), precision)


def knows(name: str) -> bool:
    """Whether this names a metric of pairs."""
    return _parse(name) is not None


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """These metrics over all pairs of the set, by cosine, from one count. NaN without a same or a different pair."""
    parsed = {name: _parse(name) for name in names}
    if unknown := [name for name, found in parsed.items() if found is None]:
        raise LikewiseError(
            f"metrics: no metric of pairs is called '{unknown[0]}'; there are {', '.join(NAMES)} (x from 0 to 1)"
        )
    accepted = _count_pairs(z, y)
    curve = _rates(accepted)
    value = {}
    for name, found in parsed.items():
        assert found is not None
        kind, x = found
        if kind == "AUROC":
            value[name] = auroc(curve)
        elif kind == "EER":
            value[name] = equal_error_rate(curve)
        elif kind == "TAR@FAR=x":
            value[name] = tar_at_far(curve, x)
        else:
            point = _operate(accepted, x)
            value[name] = point.threshold if kind == "threshold@P=x" else point.recall
    return value


def _parse(name: str) -> tuple[str, Any] | None:
    """The name as in NAMES, and its x: "TAR@P=0.9" -> ("TAR@P=x", 0.9), "EER" -> ("EER", None). None: not of pairs."""
    found = re.fullmatch(r"(\w+@\w+=)([0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?)", name)
    generic, x = (f"{found[1]}x", float(found[2])) if found else (name, None)
    fits = generic in NAMES and generic.endswith("=x") == (x is not None)
    return (generic, x) if fits and (x is None or x <= 1) else None


def _must_be_share(owner: str, name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise LikewiseError(f"{owner}: {name} must be a share from 0 to 1, got {value}")


def _accepted(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"]) -> _Accepted:
    if sim.shape != same.shape or same.dtype != torch.bool:
        raise LikewiseError(
            f"verification: one similarity and one bool a pair are wanted, got sim {tuple(sim.shape)} and same "
            f"{tuple(same.shape)} of {same.dtype}"
        )
    bad = int((~sim.isfinite()).sum())
    if bad:
        raise LikewiseError(
            f"verification: similarities must be finite, but {bad} of {len(sim)} are not; see where they come from"
        )
    value, place = sim.double().unique(return_inverse=True)
    return _from_the_top(value, *(torch.bincount(place[own], minlength=len(value)) for own in (same, ~same)))


def _from_the_top(value: Float[Tensor, "V"], same: Int[Tensor, "V"], different: Int[Tensor, "V"]) -> _Accepted:
    """Pairs at each similarity, ascending -> pairs at or above it, from infinity down."""
    infinite, none = value.new_full((1,), torch.inf), same.new_zeros(1)
    sums = (torch.cat([none, count.flip(0).cumsum(0)]) for count in (same, different))
    return _Accepted(torch.cat([infinite, value.flip(0)]), *sums)


def _rates(accepted: _Accepted) -> Roc:
    far, tar = (count.double() / count[-1] for count in (accepted.different, accepted.same))
    return Roc(far, tar, accepted.threshold)


def _undefined(curve: Roc) -> bool:
    """Whether there is no same pair, or no different one."""
    return bool((curve.far[-1] + curve.tar[-1]).isnan())


def _operate(accepted: _Accepted, precision: float) -> Operating:
    curve = _rates(accepted)
    if _undefined(curve):
        return Operating(math.nan, math.nan, math.nan, math.nan)
    precise = accepted.same.double() / (accepted.same + accepted.different)  # NaN where nothing is accepted
    enough = (precise >= precision).nonzero()[:, 0]
    if not len(enough):
        return Operating(math.nan, math.nan, 0.0, 0.0)
    at = int(enough[-1])
    return Operating(*(float(v[at]) for v in (curve.threshold, precise, curve.tar, curve.far)))


def _compare_pairs(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> _Accepted:
    """Same and different pairs i < j of a small set, by their cosines rounded to `STEP`."""
    unit = F.normalize(z.double(), dim=1)
    i, j = torch.triu_indices(len(y), len(y), 1, device=z.device)
    sim = (unit @ unit.T)[i, j]
    return _Accepted(*(part.cpu() for part in _accepted((sim / STEP).round() * STEP, y[i] == y[j])))


@torch.no_grad()
def _count_pairs(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> _Accepted:
    """Same and different pairs i < j by their cosines; in bins of these, a tile of rows by rows at a time, where they are many.

    Rows are put in the order of their classes first, so that only tiles near the diagonal hold same pairs.
    """
    check("verification", z, y)
    if len(y) * (len(y) - 1) // 2 <= FEW:
        return _compare_pairs(z, y)
    label, order = y.sort(stable=True)
    unit = [F.normalize(z[rows].double(), dim=1).float() for rows in order.split(TILE)]
    tiles = list(zip(unit, label.split(TILE), strict=True))
    first, last = label[::TILE].tolist(), [*label[TILE - 1 :: TILE].tolist(), label[-1].item()]
    beyond = BINS + 1  # where pairs go that do not count; BINS itself takes cosines rounded to 1 or more
    every, same = (torch.zeros(BINS + 2, dtype=torch.int64, device=z.device) for _ in range(2))
    with full_products(z):
        for a, (row, row_label) in enumerate(tiles):
            for b, (column, column_label) in enumerate(tiles[a:], a):
                place = (row @ column.T).add_(1).mul_(BINS / 2).int()
                if a == b:
                    place.masked_fill_(torch.ones_like(place, dtype=torch.bool).tril_(), beyond)
                every += torch.bincount(place.flatten(), minlength=BINS + 2)
                if first[b] <= last[a]:
                    place.masked_fill_(row_label[:, None] != column_label, beyond)
                    same += torch.bincount(place.flatten(), minlength=BINS + 2)
    every, same = (torch.cat([n[: BINS - 1], n[BINS - 1 : beyond].sum(0, keepdim=True)]).cpu() for n in (every, same))
    some = every.nonzero()[:, 0]
    return _from_the_top(some.double() * (2 / BINS) - 1, same[some], (every - same)[some])
