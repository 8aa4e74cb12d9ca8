"""k-means in bounded memory with the same clusters on every CPU and GPU: greedy k-means++, then Lloyd's iterations.

Points are rounded to integers (see `_Grid`), and all distances, sums and choices are computed from these. Such sums are
exact in
float64 and int64 in any order, so instruction sets, thread counts, block sizes and devices cannot change a choice, and equally
good candidates are equal to the last bit: the first one is chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.errors import LikewiseError
from likewise.core.retrieval.integer_scores import squared_lengths, unit_rows
from likewise.core.similarity import at_least_float32

DISTANCE_BUDGET_BYTES = 64 * 2**20
"""Bytes for a block of distances; a float64 copy of the points and a few values per point come on top."""

MAX_POINT_BITS = 25
"""Bits of the longest point: the squared distance of two such points then fits the 53 bits of a float64."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Groups of points. With fewer distinct points than centres, some centres coincide and have no points."""

    centre: Float[Tensor, "k D"]
    label: Int[Tensor, "N"]
    """The nearest centre of each point."""
    inertia: Float[Tensor, "T"]
    """Sum of squared distances to the nearest centre: at the start, then after each iteration."""


@torch.no_grad()
def kmeans(
    x: Float[Tensor, "N D"],
    k: int,
    *,
    iterations: int = 20,
    seed: int = 0,
    init: Float[Tensor, "k D"] | None = None,
    spherical: bool = False,
    budget: int = DISTANCE_BUDGET_BYTES,
) -> Clusters:
    """Group points around k centres, each the mean of the points that are nearest to it.

    Paper: Lloyd, Least Squares Quantization in PCM, IEEE Transactions on Information Theory 1982; the start is greedy
        k-means++ of Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
    Formula: sum_i min_c |x_i - m_c|^2, lowered by two steps in turn: label_i = argmin_c |x_i - m_c|, m_c = mean of label c
    Differs: points and centres lie on a grid whose step is 2^-25 of the longest point (coarser from 2^11 points on: 2^-20
        for a million), so that all machines make the same choices. A centre without points moves to one of the points that are
        farthest from their centres. Iterations end early if no centre moves. The start draws candidates for several steps at
        a time (see `_choose_starts`).

    Args:
        seed: seed of the start; no other step is random.
        init: initial centres; None: they are chosen.
        spherical: cluster by direction: points and centres are scaled to unit length.
        budget: bytes for distances; a smaller budget gives smaller blocks and the same result.
    """
    _check(x, k, init)
    kind, device = at_least_float32(x).dtype, x.device
    if device.type == "mps":  # MPS has no float64
        x = x.cpu()
    init = None if init is None else init.to(x.device)
    grid = _Grid.of(x, init, spherical)
    points = grid.enter(x)
    centre = points[_choose_starts(points, k, seed, budget)] if init is None else grid.enter(init)
    label, away = _nearest(points, centre, budget)
    inertia = [away.long().sum()]
    for _ in range(iterations):
        before, centre = centre, grid.settle(_means(points, label, away, centre))
        if torch.equal(centre, before):
            break
        label, away = _nearest(points, centre, budget)
        inertia.append(away.long().sum())
    squares = torch.stack(inertia).double() * grid.step**2
    return Clusters(grid.leave(centre).to(device, kind), label.to(device), squares.to(device, kind))


@dataclass(frozen=True)
class _Grid:
    """Map from points to integers: (point - shift) / step, rounded; scaled to unit length first if `spherical`.

    All values come from exact sums, sums in a fixed order and single IEEE operations, so the bits are the same on every
    machine. `step`
    is a power of two.
    """

    shift: Float[Tensor, "D"]
    step: float
    spherical: bool

    @classmethod
    def of(cls, x: Float[Tensor, "N D"], init: Float[Tensor, "k D"] | None, spherical: bool) -> _Grid:
        """Return the grid for points and initial centres. The sum of all squared distances from a centre fits an int64."""
        shift = torch.zeros_like(x[0], dtype=torch.float64) if spherical else _exact_mean(x)
        tables = [] if spherical else [x] if init is None else [x, init]
        longest = max((math.sqrt(squared_lengths(table - shift).max()) for table in tables), default=1.0)
        bits = min(MAX_POINT_BITS, (60 - len(x).bit_length()) // 2)
        return cls(shift, 2.0 ** (math.frexp(longest)[1] - bits), spherical)

    def enter(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """Return points as integers on the grid."""
        x = unit_rows(x) if self.spherical else x.double() - self.shift
        return x.div_(self.step).round_()

    def settle(self, mean: Float[Tensor, "k D"]) -> Float[Tensor, "k D"]:
        """Return means of points, rounded to the grid."""
        return (unit_rows(mean) / self.step if self.spherical else mean).round()

    def leave(self, points: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """Return grid points in the original space."""
        return points * self.step + self.shift


def _exact_mean(x: Float[Tensor, "N D"]) -> Float[Tensor, "D"]:
    """Return the mean row in float64, of values rounded to 2^-30 of the largest, whose sum is exact."""
    step = 2.0 ** (math.frexp(float(x.abs().max()))[1] - 30)
    total = torch.zeros_like(x[0], dtype=torch.int64)
    for block in x.split(2**14):
        total += (block.double() / step).round_().sum(0, dtype=torch.int64)
    return total.double() / len(x) * step


def _choose_starts(x: Float[Tensor, "N D"], k: int, seed: int, budget: int) -> Int[Tensor, "k"]:
    """Return rows to start from: greedy k-means++ in blocks.

    A step draws 4 + 2 log k candidates (twice as many as scikit-learn, for visibly better clusters), each row with a
    probability
    proportional to its squared distance from the nearest centre so far, and chooses the candidate that lowers the sum of these
    distances most; of ties the first. Candidates are drawn for a block of steps at once (an eighth of the centres chosen so
    far, or of
    those still to choose), which gives one matrix product; a candidate that an earlier step of its block made useless lowers
    the sum little, and is not chosen.
    """
    tries, length = 2 * (2 + int(math.log(k))), x.square().sum(1)
    draw = torch.rand(k, tries, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(x.device)
    chosen = [(draw[0, :1] * len(x)).long()]
    steps = min(k, max(1, budget // (tries * len(x) * x.element_size())))
    room = x.new_empty(steps * tries, len(x))
    away = _distances(x, length, chosen[0], room)[0].clone()
    while (done := len(chosen)) < k:
        running = away.cumsum(0, dtype=torch.int64).double()
        at = draw[done : done + max(1, min(done, k - done) // 8)] * running[-1]
        for rows in torch.searchsorted(running, at, right=True).clamp_max_(len(x) - 1).split(steps):
            for row, found in zip(rows, _distances(x, length, rows.flatten(), room).view(*rows.shape, -1), strict=True):
                torch.minimum(found, away, out=found)
                # `best` stays a tensor: no device sync.
                best = found.sum(1, dtype=torch.int64).argmin(0, keepdim=True)
                chosen.append(row.index_select(0, best))
                away = found.index_select(0, best)[0]
    return torch.cat(chosen)


def _distances(
    x: Float[Tensor, "N D"], length: Float[Tensor, "N"], row: Int[Tensor, "C"], room: Float[Tensor, "most N"]
) -> Float[Tensor, "C N"]:
    """Return squared distances of some rows from all rows, written into the first rows of `room`."""
    return torch.addmm(length, x[row], x.T, alpha=-2, out=room[: len(row)]).add_(length[row, None])


def _nearest(
    x: Float[Tensor, "N D"], centre: Float[Tensor, "k D"], budget: int
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"]]:
    """Return the nearest centre of every point (of ties the first), and the squared distance."""
    length, rows = centre.square().sum(1), max(1, budget // (len(centre) * x.element_size()))
    room = x.new_empty(min(rows, len(x)), len(centre))
    found = (torch.addmm(length, block, centre.T, alpha=-2, out=room[: len(block)]).min(1) for block in x.split(rows))
    away, label = zip(*found, strict=True)
    return torch.cat(label), torch.cat(away).add_(x.square().sum(1))


def _means(
    x: Float[Tensor, "N D"], label: Int[Tensor, "N"], away: Float[Tensor, "N"], centre: Float[Tensor, "k D"]
) -> Float[Tensor, "k D"]:
    """Return the mean of every cluster; an empty cluster moves to one of the farthest points, or stays if there is none."""
    count = torch.bincount(label, minlength=len(centre))
    empty = (count == 0).nonzero()[:, 0]
    if len(empty):
        farthest = away.sort(descending=True, stable=True)
        row = farthest.indices[: len(empty)][farthest.values[: len(empty)] > 0]
        label = label.index_copy(0, row, empty[: len(row)])
        count = torch.bincount(label, minlength=len(centre))
    order = label.argsort(stable=True)
    total = F.embedding_bag(order, x, count.cumsum(0) - count, mode="sum")  # sorted rows: no atomics, no copy of x
    return torch.where(count[:, None] > 0, total / count.clamp_min(1)[:, None], centre)


def _check(x: Tensor, k: int, init: Tensor | None) -> None:
    if not 1 <= k <= len(x):
        raise LikewiseError(f"kmeans: k must lie between 1 and the number of points, got k={k} for {len(x)}; lower k")
    for name, table in (("x", x), ("init", init)):
        if table is None:
            continue
        bad = (~squared_lengths(table).isfinite()).nonzero()[:, 0]
        if len(bad):
            raise LikewiseError(
                f"kmeans: {name} must be finite, and so must its squares, but {len(bad)} of {len(table)} rows are not (first: "
                f"row {int(bad[0])}); leave out these rows, or check the network that made them"
            )
