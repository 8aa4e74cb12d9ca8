"""Verification metrics: whether two samples have the same class. For given pairs, or all pairs of a set of embeddings.

A pair is accepted if its similarity is at least a threshold. TAR (true accept rate, recall) is the share of same-class
pairs that are accepted, FAR (false accept rate) the share of different-class pairs that are accepted, and precision the
share of same-class pairs among the accepted pairs. "Same" and "different" pairs below mean these.
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

from likewise.core.errors import LikewiseError
from likewise.core.similarity import full_precision_matmul
from likewise.score.metrics.spectrum import check

NAMES = {
    "AUROC": "probability that a same pair is more similar than a different pair; a tie counts half",
    "EER": "equal error rate: share of different pairs accepted = share of same pairs rejected; low is good",
    "TAR@FAR=x": "share of same pairs accepted when at most a share x (as in 1e-3) of different pairs is accepted",
    "TAR@P=x": "share of same pairs accepted when a share x (as in 0.99) of the accepted pairs is same",
    "threshold@P=x": "lowest cosine at which a share x (as in 0.99) of the accepted pairs is same",
}

MAX_EXACT_PAIRS = 2**21
"""Largest number of pairs that are compared exactly (2,048 rows, 150 MB); in larger sets, cosines are counted in bins."""

COSINE_UNIT = 2.0**-36
"""Rounding unit of exact cosines in float64: ten thousand times their error, so that equal vectors tie."""

COSINE_BINS = 2**18
"""Number of bins of the cosine, from -1 to 1, for all pairs of a large set; each bin is 7.6e-6 wide."""

TILE_ROWS = 2048
"""Rows and columns of a tile of pairs: about 50 MB of cosines, bins and masks, plus a float32 copy of z."""


class Roc(NamedTuple):
    """FAR and TAR at every threshold, from infinity (no pair is accepted) down to the lowest (all pairs are accepted)."""

    far: Float[Tensor, "P"]
    tar: Float[Tensor, "P"]
    threshold: Float[Tensor, "P"]


class Operating(NamedTuple):
    """An operating point: a threshold, with the rates when pairs with at least this similarity are accepted."""

    threshold: float
    precision: float
    recall: float  # TAR
    far: float


class _Accepted(NamedTuple):
    """Number of pairs that each threshold accepts; thresholds descend from infinity."""

    threshold: Float[Tensor, "P"]
    same: Int[Tensor, "P"]
    different: Int[Tensor, "P"]


def roc(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"]) -> Roc:
    """Return the exact ROC curve of these pairs; equal similarities are one step. Rates are NaN without a pair of their kind.

    Formula: TAR(t) = |{same, sim >= t}| / |{same}|, FAR(t) = |{different, sim >= t}| / |{different}|
    """
    return _rates(_accepted(sim, same))


def roc_of_set(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Roc:
    """Return the ROC curve of all N (N - 1) / 2 pairs of a set, by cosine, in bounded memory.

    Up to 2,048 rows, cosines are float64 products rounded to 2^-36: equal vectors tie, and the curve is exact except for cosines
    that differ by less than 1.5e-11. In larger sets, cosines are float32 products with an error of about 1e-6, counted in bins of
    width 7.6e-6. Thresholds are then lower edges of bins, so that a TAR is never above the exact one, except for pairs within
    1e-6 of an edge; the error of the area is at most the share of (same pair, different pair) couples closer than 1e-5.
    """
    return _rates(_count_pairs(z, y))


def auroc(curve: Roc) -> float:
    """Return the area under the curve: the probability that a same pair is more similar than a different pair.

    Formula: sum_t (FAR_t - FAR_{t-1}) (TAR_t + TAR_{t-1}) / 2
    """
    return float(torch.trapezoid(curve.tar, curve.far))


def equal_error_rate(curve: Roc) -> float:
    """Return the rate at which FAR equals 1 - TAR, with linear interpolation between steps.

    Formula: FAR(t) = 1 - TAR(t)
    """
    if _undefined(curve):
        return math.nan
    gap = curve.far + curve.tar - 1  # increases strictly from -1 to 1
    at = int((gap < 0).sum())
    share = gap[at - 1] / (gap[at - 1] - gap[at])
    return float(torch.lerp(curve.far[at - 1], curve.far[at], share))


def tar_at_far(curve: Roc, far: float) -> float:
    """Return the largest TAR with at most this FAR. A FAR below 1 / (number of different pairs) allows no false accept."""
    _check_share("tar_at_far", "far", far)
    return math.nan if _undefined(curve) else float(curve.tar[curve.far <= far][-1])


def threshold_for(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"], precision: float) -> Operating:
    """Return the lowest threshold with at least this precision, which is the one of largest recall.

    If no threshold has this precision, no pair is accepted: recall and FAR are 0, threshold and precision NaN. All values are NaN
    without a same pair or without a different pair.
    """
    _check_share("threshold_for", "precision", precision)
    return _operate(_accepted(sim, same), precision)


def calibrate(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], precision: float = 0.99) -> Operating:
    """Return the lowest cosine threshold with at least this precision, over all pairs of a set; see `threshold_for`.

    Precision depends on the share of same pairs: use rows with the class mix of the application that were not in training. It is
    as exact as `roc_of_set`.
    """
    _check_share("calibrate", "precision", precision)
    return _operate(_count_pairs(z, y), precision)


def knows(name: str) -> bool:
    """Return whether a name is a verification metric."""
    return _parse(name) is not None


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """Return these metrics over all pairs of the set, by cosine, from one count. NaN without a same or a different pair."""
    parsed = {name: _parse(name) for name in names}
    if unknown := [name for name, found in parsed.items() if found is None]:
        raise LikewiseError(
            f"metrics: there is no verification metric '{unknown[0]}'; there are {', '.join(NAMES)} (x from 0 to 1)"
        )
    return _values(parsed, _count_pairs(z, y))


def _values(names: Iterable[str], accepted: _Accepted) -> dict[str, float]:
    """Return these metrics of counted pairs."""
    curve = _rates(accepted)
    value = {}
    for name in names:
        found = _parse(name)
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


JACKKNIFE_GROUPS = 20
"""Groups of sampled rows, each of which is left out once for the interval."""


def measure_sample(
    names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"], drawn: Int[Tensor, "n"]
) -> dict[str, tuple[float, float, float]]:
    """Return these metrics, estimated from the pairs of drawn rows with all other rows, each with its 95 % interval.

    The interval is for all pairs of these rows; NaN ends if the metric is not defined without some of the drawn rows. Cosines
    are counted in bins as in `roc_of_set`. Cost: n N products in place of N^2 / 2.

    Paper: Wolter, Introduction to Variance Estimation, 1985, section 4.2: the jackknife over random groups.
    Formula: V = (1 - n / N) (G - 1) / G sum_g (m_g - mean m_g)^2, m_g without group g; m +- t_{G - 1} sqrt(V)

    Args:
        drawn: rows in the order of drawing (`query_sample.draw_queries`), so that every G-th row is a stratified sample too.
    """
    from scipy.special import stdtrit  # slow to import

    groups = min(JACKKNIFE_GROUPS, len(drawn))
    every, same = _count_drawn_pairs(z, y, drawn, groups)
    names = list(names)
    whole = _values(names, _from_bins(every.sum(0), same.sum(0)))
    without = [
        _values(names, _from_bins(*(n.sum(0) - n[g] for n in (every, same))))
        for g in range(groups if groups > 1 else 0)
    ]
    reach = {}
    for name in names:
        each = torch.tensor([one[name] for one in without], dtype=torch.float64)
        spread = (1 - len(drawn) / len(y)) * (groups - 1) / groups * float((each - each.mean()).square().sum())
        reach[name] = float(stdtrit(groups - 1, 0.975)) * spread**0.5 if len(each) else math.nan
    return {name: (value, value - reach[name], value + reach[name]) for name, value in whole.items()}


def undefined_reason(name: str, y: Int[Tensor, "N"]) -> str:
    """Return why a verification metric has no value for samples with these labels."""
    count = y.unique(return_counts=True)[1]
    if len(count) < 2 or count.max() < 2:
        return f"there is no pair of {'different classes' if len(count) < 2 else 'one class'}"
    found = _parse(name)
    assert found is not None
    return f"no threshold reaches a precision of {found[1]:g} on these pairs"


def _parse(name: str) -> tuple[str, Any] | None:
    """Return the name as in NAMES, and its x: "TAR@P=0.9" -> ("TAR@P=x", 0.9), "EER" -> ("EER", None). None: unknown name."""
    found = re.fullmatch(r"(\w+@\w+=)([0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?)", name)
    generic, x = (f"{found[1]}x", float(found[2])) if found else (name, None)
    fits = generic in NAMES and generic.endswith("=x") == (x is not None)
    return (generic, x) if fits and (x is None or x <= 1) else None


def _check_share(owner: str, name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise LikewiseError(f"{owner}: {name} must be a share from 0 to 1, got {value}")


def _accepted(sim: Float[Tensor, "M"], same: Bool[Tensor, "M"]) -> _Accepted:
    if sim.shape != same.shape or same.dtype != torch.bool:
        raise LikewiseError(
            f"verification: sim and same must have one entry per pair, and same must be bool, got sim {tuple(sim.shape)} and "
            f"same {tuple(same.shape)} of {same.dtype}"
        )
    bad = int((~sim.isfinite()).sum())
    if bad:
        raise LikewiseError(
            f"verification: similarities must be finite, but {bad} of {len(sim)} are not; check the embeddings"
        )
    value, place = sim.double().unique(return_inverse=True)
    return _cumulate(value, *(torch.bincount(place[own], minlength=len(value)) for own in (same, ~same)))


def _cumulate(value: Float[Tensor, "V"], same: Int[Tensor, "V"], different: Int[Tensor, "V"]) -> _Accepted:
    """Return the number of pairs at or above each similarity, from infinity down, from the number at each, ascending."""
    infinite, none = value.new_full((1,), torch.inf), same.new_zeros(1)
    sums = (torch.cat([none, count.flip(0).cumsum(0)]) for count in (same, different))
    return _Accepted(torch.cat([infinite, value.flip(0)]), *sums)


def _rates(accepted: _Accepted) -> Roc:
    far, tar = (count.double() / count[-1] for count in (accepted.different, accepted.same))
    return Roc(far, tar, accepted.threshold)


def _undefined(curve: Roc) -> bool:
    """Return whether there is no same pair, or no different pair."""
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
    """Return the numbers of same and different pairs i < j of a small set by cosine, rounded to `COSINE_UNIT`."""
    unit = F.normalize(z.double(), dim=1)
    i, j = torch.triu_indices(len(y), len(y), 1, device=z.device)
    sim = (unit @ unit.T)[i, j]
    return _Accepted(*(field.cpu() for field in _accepted((sim / COSINE_UNIT).round() * COSINE_UNIT, y[i] == y[j])))


@torch.no_grad()
def _count_pairs(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> _Accepted:
    """Return the numbers of same and different pairs i < j by cosine; in large sets, in bins of the cosine, tile by tile.

    Rows are first sorted by class, so that only tiles near the diagonal have same pairs.
    """
    check("verification", z, y)
    if len(y) * (len(y) - 1) // 2 <= MAX_EXACT_PAIRS:
        return _compare_pairs(z, y)
    label, order = y.sort(stable=True)
    unit = [F.normalize(z[rows].double(), dim=1).float() for rows in order.split(TILE_ROWS)]
    tiles = list(zip(unit, label.split(TILE_ROWS), strict=True))
    first, last = label[::TILE_ROWS].tolist(), [*label[TILE_ROWS - 1 :: TILE_ROWS].tolist(), label[-1].item()]
    beyond = COSINE_BINS + 1  # bin of ignored pairs; bin COSINE_BINS is for cosines rounded to 1 or more
    every, same = (torch.zeros(COSINE_BINS + 2, dtype=torch.int64, device=z.device) for _ in range(2))
    with full_precision_matmul(z):
        for a, (row, row_label) in enumerate(tiles):
            for b, (column, column_label) in enumerate(tiles[a:], a):
                place = (row @ column.T).add_(1).mul_(COSINE_BINS / 2).int()
                if a == b:
                    place.masked_fill_(torch.ones_like(place, dtype=torch.bool).tril_(), beyond)
                every += torch.bincount(place.flatten(), minlength=COSINE_BINS + 2)
                if first[b] <= last[a]:
                    place.masked_fill_(row_label[:, None] != column_label, beyond)
                    same += torch.bincount(place.flatten(), minlength=COSINE_BINS + 2)
    return _from_bins(every.cpu(), same.cpu())


@torch.no_grad()
def _count_drawn_pairs(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], drawn: Int[Tensor, "n"], groups: int
) -> tuple[Int[Tensor, "G B"], Int[Tensor, "G B"]]:
    """Return the numbers of all and of same pairs of drawn rows with every other row, in bins of the cosine, tile by tile.

    Args:
        drawn: rows; every `groups`-th row belongs to the same group.
    """
    check("verification", z, y)
    order = y.argsort(stable=True)
    beyond = COSINE_BINS + 1
    every, same = (torch.zeros(groups, COSINE_BINS + 2, dtype=torch.int64) for _ in range(2))
    width = TILE_ROWS * TILE_ROWS // min(TILE_ROWS, -(-len(drawn) // groups))  # as many cells for few rows of a group
    columns = [(F.normalize(z[rows].double(), dim=1).float(), y[rows], rows) for rows in order.split(width)]
    for g in range(groups):
        own = drawn[g::groups]
        for rows in own[y[own].argsort(stable=True)].split(TILE_ROWS):
            row, label = F.normalize(z[rows].double(), dim=1).float(), y[rows]
            for column, column_label, place_of in columns:
                with full_precision_matmul(z):
                    place = (row @ column.T).add_(1).mul_(COSINE_BINS / 2).int()
                near = bool(column_label[0] <= label[-1]) and bool(label[0] <= column_label[-1])
                if near:
                    place.masked_fill_(rows[:, None] == place_of, beyond)
                every[g] += torch.bincount(place.flatten(), minlength=COSINE_BINS + 2).cpu()
                if near:
                    place.masked_fill_(label[:, None] != column_label, beyond)
                    same[g] += torch.bincount(place.flatten(), minlength=COSINE_BINS + 2).cpu()
    return every, same


def _from_bins(every: Int[Tensor, "B"], same: Int[Tensor, "B"]) -> _Accepted:
    """Return the numbers of accepted pairs from those in every bin of the cosine; the last bin is ignored."""
    every, same = (
        torch.cat([n[: COSINE_BINS - 1], n[COSINE_BINS - 1 : COSINE_BINS + 1].sum(0, keepdim=True)])
        for n in (every, same)
    )
    some = every.nonzero()[:, 0]
    return _cumulate(some.double() * (2 / COSINE_BINS) - 1, same[some], (every - same)[some])
