"""k-means on any device, in bounded memory: a careful start, then Lloyd's iterations.

Everything is a matrix product over a block of rows, so that neither time nor memory ever sees an N x k matrix at once. The same
seed gives the same clusters: on the CPU to the last bit, elsewhere up to rounding (random numbers come from the CPU, and means
are summed in a fixed order, but products and running sums need not be).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.errors import LikewiseError
from likewise.similarity import at_least_float32, full_products

BUDGET = 64 * 2**20
"""Bytes for a block of distances; on top of it come a copy of the points and a few numbers for each."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Groups of points. With fewer distinct points than centres, some centres coincide and are nobody's nearest."""

    centre: Float[Tensor, "k D"]
    label: Int[Tensor, "N"]  # the nearest centre of each point
    inertia: Float[
        Tensor, "T"
    ]  # sum of squared distances to the nearest centre: at the start, then after each iteration


@torch.no_grad()
def kmeans(
    x: Float[Tensor, "N D"],
    k: int,
    *,
    iterations: int = 20,
    seed: int = 0,
    init: Float[Tensor, "k D"] | None = None,
    spherical: bool = False,
    budget: int = BUDGET,
) -> Clusters:
    """Group points around k centres, each the mean of the points that are nearest to it.

    Paper: Lloyd, Least Squares Quantization in PCM, IEEE Transactions on Information Theory 1982; the start is greedy
        k-means++ of Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
    Formula: sum_i min_c |x_i - m_c|^2, lowered by two steps in turn: label_i = argmin_c |x_i - m_c|, m_c = mean of label c
    Differs: a centre without points moves to one of the points that are farthest from their own. It ends early where nothing
        changes any more. The start draws candidates for several steps at a time (see `_spread`).

    Args:
        seed: of the start; no other step is random.
        init: centres to start from, in place of chosen ones.
        spherical: by direction: points and centres are scaled to unit length.
        budget: bytes for distances; smaller means smaller blocks, and other results only where rounding decides.
    """
    _check(x, k, iterations, init)
    with full_products(x):
        x = at_least_float32(x)
        # Far from the origin, squares would drown differences.
        shift = torch.zeros_like(x[0]) if spherical else x.mean(0)
        x = F.normalize(x, dim=1) if spherical else x - shift
        if init is None:
            centre = x[_spread(x, k, seed, budget)]
        else:
            centre = F.normalize(init.to(x), dim=1) if spherical else init.to(x) - shift
        label, away = _nearest(x, centre, budget)
        inertia = [away.sum(dtype=torch.float64)]
        for _ in range(iterations):
            before, centre = centre, _means(x, label, away, centre)
            centre = F.normalize(centre, dim=1) if spherical else centre
            if torch.equal(centre, before):
                break
            label, away = _nearest(x, centre, budget)
            inertia.append(away.sum(dtype=torch.float64))
    return Clusters(centre + shift, label, torch.stack(inertia))


def _spread(x: Float[Tensor, "N D"], k: int, seed: int, budget: int) -> Int[Tensor, "k"]:
    """Rows to start from: greedy k-means++ in blocks.

    A step draws 4 + 2 log k candidates (twice what scikit-learn takes: clusters fit visibly better), each row as likely as its
    squared distance from the nearest centre so far, and takes the one that lowers the sum of these most. Drawing for a block of
    steps at once (an eighth of the centres there are, or of those still to find) makes one matrix product of them; a candidate
    that an earlier step of its block made useless lowers little, and so is not taken.
    """
    tries, length = 2 * (2 + int(math.log(k))), _squared_length(x)
    draw = torch.rand(k, tries, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(x.device)
    chosen = [(draw[0, :1] * len(x)).long()]
    steps = min(k, max(1, budget // (tries * len(x) * x.element_size())))
    room = x.new_empty(steps * tries, len(x))
    away = _distances(x, length, chosen[0], room)[0].clone()
    while (done := len(chosen)) < k:
        running = away.cumsum(0, dtype=torch.float64)
        at = draw[done : done + max(1, min(done, k - done) // 8)] * running[-1]
        for rows in torch.searchsorted(running, at, right=True).clamp_max_(len(x) - 1).split(steps):
            for row, found in zip(rows, _distances(x, length, rows.flatten(), room).view(*rows.shape, -1), strict=True):
                torch.minimum(found, away, out=found)
                best = found.sum(1).argmin(0, keepdim=True)  # stays a tensor, so that an accelerator never waits
                chosen.append(row.index_select(0, best))
                away = found.index_select(0, best)[0]
    return torch.cat(chosen)


def _distances(
    x: Float[Tensor, "N D"], length: Float[Tensor, "N"], row: Int[Tensor, "C"], room: Float[Tensor, "most N"]
) -> Float[Tensor, "C N"]:
    """Squared distances of some rows from all, written into the first rows of `room`."""
    return torch.addmm(length, x[row], x.T, alpha=-2, out=room[: len(row)]).add_(length[row, None]).clamp_min_(0)


def _nearest(
    x: Float[Tensor, "N D"], centre: Float[Tensor, "k D"], budget: int
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"]]:
    """The nearest centre of every point, and the squared distance."""
    length, rows = _squared_length(centre), max(1, budget // (len(centre) * x.element_size()))
    room = x.new_empty(min(rows, len(x)), len(centre))
    found = (torch.addmm(length, part, centre.T, alpha=-2, out=room[: len(part)]).min(1) for part in x.split(rows))
    away, label = zip(*found, strict=True)
    return torch.cat(label), torch.cat(away).add_(_squared_length(x)).clamp_min_(0)


def _means(
    x: Float[Tensor, "N D"], label: Int[Tensor, "N"], away: Float[Tensor, "N"], centre: Float[Tensor, "k D"]
) -> Float[Tensor, "k D"]:
    """The mean of every cluster; an empty one takes one of the farthest points, or stays where no point is away."""
    count = torch.bincount(label, minlength=len(centre))
    empty = (count == 0).nonzero()[:, 0]
    if len(empty):
        farthest = away.topk(len(empty))
        row = farthest.indices[farthest.values > 0]
        label = label.index_copy(0, row, empty[: len(row)])
        count = torch.bincount(label, minlength=len(centre))
    order = label.argsort(stable=True)
    mean = F.embedding_bag(order, x, count.cumsum(0) - count, mode="mean")  # sums sorted rows: no atomics, no copy of x
    return mean.where(count[:, None] > 0, centre)


def _squared_length(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    return torch.linalg.vector_norm(x, dim=1).square_()


def _check(x: Tensor, k: int, iterations: int, init: Tensor | None) -> None:
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or not x.shape[1]:
        got = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise LikewiseError(f"kmeans: x must be a float tensor (N, D), got {got}")
    if not 1 <= k <= len(x):
        raise LikewiseError(f"kmeans: k must lie between 1 and the number of points, got k={k} for {len(x)}; lower k")
    if iterations < 0:
        raise LikewiseError(f"kmeans: iterations must be 0 or more, got {iterations}")
    if init is not None and init.shape != (k, x.shape[1]):
        raise LikewiseError(f"kmeans: init must be k x D = {k} x {x.shape[1]} centres, got shape {tuple(init.shape)}")
    for name, table in (("x", x), ("init", init)):
        if table is None:
            continue
        bad = (~_squared_length(at_least_float32(table)).isfinite()).nonzero()[:, 0]
        if len(bad):
            raise LikewiseError(
                f"kmeans: {name} must be finite, and so must its squares, but {len(bad)} of {len(table)} rows are not (first: "
                f"row {int(bad[0])}); leave them out, or see why the network gives them"
            )
