"""Scores that are the same on every machine, and what is decided by them alone.

Embeddings are rounded to integers of 26 bits (25 for Euclidean ranking). A dot product of two such vectors fits the 53 bits
of a float64 whatever the order of summation, so every machine gets the same number and equal vectors tie exactly. Equal scores
go to the lower row. Nothing but the embeddings themselves is kept: a block of them is made whole when it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.errors import LikewiseError

UNIT = 2.0**26
"""What a unit vector is multiplied with before rounding."""

CHUNK = 2**20
"""Numbers in float64 that preparing takes at a time."""

LONGER = 2.0**15
"""How many times longer than most a vector may be: rounded to a part of the longest, the others keep ten bits."""


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or gallery, ready to be compared on a device. The embeddings may lie elsewhere: on the CPU, or on disk."""

    z: Float[Tensor, "N D"]
    factor: Float[Tensor, "N"]  # float64; times a row, rounded: whole numbers
    norm: Float[Tensor, "N"] | None  # squared length of the whole numbers, exact; None for cosine
    scale: float  # whole numbers / scale are of the size of z (Euclidean) or of unit length
    held: Float[Tensor, "N D"] | None = None  # `real` of all rows, where there is room

    @property
    def device(self) -> torch.device:
        return self.factor.device

    def __len__(self) -> int:
        return len(self.z)

    def _scaled(self, rows: slice | Tensor, by: float) -> Float[Tensor, "n D"]:
        source = rows if isinstance(rows, slice) else rows.to(self.z.device)
        own = self.z[source].to(self.device).to(torch.float64, copy=True)  # those given are never changed
        return own.mul_((self.factor[rows] * by)[:, None])

    def whole(self, rows: slice | Tensor) -> Float[Tensor, "n D"]:
        """These rows as whole numbers, in float64."""
        return self._scaled(rows, 1).round_()

    @property
    def top(self) -> float:
        """No whole number is larger than this."""
        return UNIT if self.norm is None else UNIT / 2

    def real(self, rows: slice | Tensor) -> Float[Tensor, "n D"]:
        """These rows near `whole` / top, for fast products: float32, or float16 on a GPU."""
        if self.held is not None:
            return self.held[rows]
        return self._scaled(rows, 1 / self.top).to(self.short)  # scaled in float64: a factor may be beyond float32

    @property
    def short(self) -> torch.dtype:
        return torch.float16 if self.device.type == "cuda" else torch.float32


def prepare(z: Tensor, device: torch.device, scale: float | None, name: str, room: int = 0) -> Side:
    """A side for cosines or, with a scale, for distances; `room` bytes may be held for it."""
    squared = squared_lengths(z, device)
    bad = (~torch.isfinite(squared)).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"search: embeddings must be finite, got NaN or infinity in {len(bad)} {name} rows "
            f"(first: row {int(bad[0])}); look for a diverged training, a broken image, or float16 that overflowed"
        )
    factor = (UNIT / squared.sqrt()).where(squared > 0, 0.0) if scale is None else torch.full_like(squared, scale)
    side = Side(z, factor, None, scale or UNIT)
    if scale is not None:
        side = replace(side, norm=torch.cat([side.whole(rows).square_().sum(1) for rows in _blocks(z)]))
    if z.numel() * side.short.itemsize <= room:
        held = torch.empty(z.shape, dtype=side.short, device=device)
        for rows in _blocks(z):
            held[rows] = side.real(rows)
        side = replace(side, held=held)
    return side


def euclidean_scale(*sides: Tensor) -> float:
    """The power of two that puts the longest vector just below 25 bits."""
    squared = torch.cat([squared_lengths(z).cpu() for z in sides])
    squared = squared[squared.isfinite() & (squared > 0)]
    if not len(squared):
        return 1.0
    longest, usual = math.sqrt(squared.max()), math.sqrt(squared.median())
    if longest > LONGER * usual:
        raise LikewiseError(
            f"search: to compare distances, no embedding may be more than {LONGER:.0f} times as long as most, "
            f"got one of length {longest:.3g} where the median is {usual:.3g}; leave it out, or rank by cosine"
        )
    return 2.0 ** (25 - math.ceil(math.log2(longest)))


def squared_lengths(z: Float[Tensor, "N D"], device: torch.device | None = None) -> Float[Tensor, "N"]:
    """Squared norms of rows in float64, with the same bits on every device."""
    device = device or z.device
    squared = torch.empty(len(z), dtype=torch.float64, device=device)
    for rows in _blocks(z):
        squared[rows] = _fixed_order_sum(z[rows].to(device).double().square())
    return squared


def unit_rows(z: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Rows scaled to unit length, in float64, with the same bits on every device. A row of zeros stays."""
    return z.double() / squared_lengths(z).sqrt().clamp_min(1e-150)[:, None]


def _blocks(z: Tensor) -> list[slice]:
    return cut(len(z), CHUNK // z.shape[1])


def cut(n: int, size: int) -> list[slice]:
    """`n` rows in slices of `size`."""
    size = max(1, size)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _fixed_order_sum(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    """Sum of rows by halving: only elementwise additions, so the same bits on every device."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        rest = x[:, 2 * half :]
        x = torch.cat([x[:, :half] + x[:, half : 2 * half], rest], 1) if rest.shape[1] else x[:, :half] + x[:, half:]
    return x[:, 0]


class Forbidden:
    """Who is no answer to whom: each query itself (`own`, -1: nowhere), given pairs (sorted by query), and equal groups."""

    def __init__(
        self, queries: int, own: Tensor | None, pairs: Int[Tensor, "M 2"], groups: tuple[Tensor, Tensor] | None = None
    ):
        self.own, self.query, self.row, self.groups = own, pairs[:, 0], pairs[:, 1], groups
        count = torch.bincount(self.query, minlength=queries)
        self.start = torch.cat([count.new_zeros(1), count.cumsum(0)])

    def mask(self, score: Float[Tensor, "A B"], ids: Int[Tensor, "A"], first: int) -> None:
        """Take them out of the running, in place: `score` of these queries against gallery rows from `first` on."""
        if self.own is not None:
            self._strike(score, torch.arange(len(ids), device=ids.device), self.own[ids] - first)
        if len(self.query):
            count = self.start[ids + 1] - self.start[ids]
            place = torch.arange(len(ids), device=ids.device).repeat_interleave(count)
            offset = torch.arange(len(place), device=ids.device) - (count.cumsum(0) - count).repeat_interleave(count)
            self._strike(score, place, self.row[self.start[ids][place] + offset] - first)
        if self.groups is not None:
            group = self.groups[0][ids][:, None]
            score.masked_fill_(
                (group == self.groups[1][None, first : first + score.shape[1]]) & (group >= 0), -torch.inf
            )

    def _strike(self, score: Tensor, place: Tensor, column: Tensor) -> None:
        """Without a look at the values: those of other blocks are compared with infinity, which changes nothing."""
        wide = score.shape[1]
        value = torch.where((column >= 0) & (column < wide), -torch.inf, torch.inf).to(score.dtype)
        score.view(-1).scatter_reduce_(0, place * wide + column.clamp(0, wide - 1), value, "amin")


def keys(queries: Side, gallery: Side, forbidden: Forbidden, q: Tensor, ids: Tensor, rows: slice) -> Tensor:
    """Exact scores of some queries (`q` = their whole numbers) against a block of the gallery; -inf where forbidden."""
    key = q @ gallery.whole(rows).T
    if gallery.norm is not None:
        key.mul_(2).sub_(gallery.norm[rows])
    forbidden.mask(key, ids, rows.start)
    return key


def pair_keys(queries: Side, gallery: Side, ids: Tensor, rows: Int[Tensor, "n K"], budget: int) -> Float[Tensor, "n K"]:
    """Exact scores of each query against its own K gallery rows."""
    dim = gallery.z.shape[1]
    key = torch.empty(rows.shape, dtype=torch.float64, device=rows.device)
    most = (budget if rows.is_cuda else min(budget, 2**22)) // (dim * 24)  # pairs, as many as a CPU's cache holds
    for part in cut(len(ids), most // rows.shape[1]):
        q = queries.whole(ids[part])[:, :, None]
        for columns in cut(rows.shape[1], max(most, 64)):
            some = rows[part, columns]
            key[part, columns] = torch.bmm(gallery.whole(some.flatten()).view(*some.shape, dim), q)[:, :, 0]
    return key if gallery.norm is None else 2 * key - gallery.norm[rows]


def readable(key: Float[Tensor, "C K"], queries: Side, ids: Int[Tensor, "C"]) -> Float[Tensor, "C K"]:
    """Exact keys as the similarity a person reads: the cosine, or minus the distance."""
    if queries.norm is None:
        return (key / queries.scale**2).masked_fill(key == -torch.inf, torch.nan)
    squared = (queries.norm[ids][:, None] - key).clamp_min(0)
    return (-squared.sqrt() / queries.scale).masked_fill(key == -torch.inf, torch.nan)


def exhaustive(
    queries: Side, gallery: Side, forbidden: Forbidden, ids: Int[Tensor, "n"], k: int, budget: int
) -> Iterator[tuple[Tensor, Int[Tensor, "C K"], Float[Tensor, "C K"]]]:
    """The first k rows by exact keys against the whole gallery, some queries at a time."""
    for some, blocks in tiles(ids, gallery, budget, each=32, k=k):
        q = queries.whole(some)
        best_key = torch.full((len(some), k), -torch.inf, dtype=torch.float64, device=q.device)
        best_row = torch.full((len(some), k), -1, dtype=torch.int64, device=q.device)
        for rows in blocks:
            key, row = _first(keys(queries, gallery, forbidden, q, some, rows), k)
            both = torch.cat([best_key, key], 1)  # lower rows stand first
            key, order = both.sort(dim=1, descending=True, stable=True)
            best_key = key[:, :k]
            best_row = torch.cat([best_row, row + rows.start], 1).gather(1, order[:, :k])
        yield some, best_row.masked_fill(best_key == -torch.inf, -1), best_key


def tiles(ids: Tensor, gallery: Side, budget: int, each: int, k: int = 1) -> Iterator[tuple[Tensor, list[slice]]]:
    """Queries and gallery in tiles that take `each` bytes a pair, half of the budget, and their whole numbers the other.

    So few queries at a time that the k answers kept for each are no more than a fourth of a tile.
    """
    pairs, most = max(4096, budget // 2 // each), max(64, budget // (64 * gallery.z.shape[1]))
    height = min(len(ids), most, max(pairs // len(gallery), int(pairs**0.5)), max(1, pairs // (4 * k)))
    for some in ids.split(height):
        yield some, cut(len(gallery), min(most, pairs // height))


def _first(key: Float[Tensor, "A B"], k: int) -> tuple[Float[Tensor, "A K"], Int[Tensor, "A K"]]:
    """The first k of a block in order: by key, equal ones by column."""
    if k >= key.shape[1]:
        key, column = key.sort(dim=1, descending=True, stable=True)
        return key, column
    best = key.topk(k + 1, dim=1)
    column = best.indices[:, :k].sort(dim=1).values
    ordered, order = key.gather(1, column).sort(dim=1, descending=True, stable=True)
    column = column.gather(1, order)
    tied = (best.values[:, k - 1] == best.values[:, k]) & (best.values[:, k] > -torch.inf)
    tied = tied.nonzero()[:, 0]  # across the border: which of the equals come first is decided by row, over all of them
    if len(tied):
        full = key[tied].sort(dim=1, descending=True, stable=True)
        ordered[tied], column[tied] = full.values[:, :k], full.indices[:, :k]
    return ordered, column


def places(
    queries: Side, gallery: Side, forbidden: Forbidden, who: Int[Tensor, "M"], row: Int[Tensor, "M"], budget: int
) -> Int[Tensor, "M"]:
    """Ranks of given answers, counted from 1: one more than the number of rows that come before. `who` must ascend."""
    rank = torch.empty_like(who)
    asked, count = who.unique_consecutive(return_counts=True)
    per_tile = max(1, budget // (8 * max(1, int(count.max()) if len(count) else 1) * 32))
    at = 0
    for ids, size in zip(asked.split(per_tile), count.split(per_tile)):
        pairs = slice(at, at + int(size.sum()))
        way = _count_before if 16 * len(ids) > pairs.stop - at else _sort_all  # with many answers, sorting is cheaper
        rank[pairs] = way(queries, gallery, forbidden, ids, size, row[pairs], budget)
        at = pairs.stop
    return rank


def _sort_all(queries, gallery, forbidden, ids: Tensor, size: Tensor, row: Tensor, budget: int) -> Tensor:
    """Ranks of the answers `row` of these queries, `size` of them each: their places when everyone is sorted."""
    n, rank, at = len(gallery), torch.empty_like(row), 0
    count = torch.arange(1, n + 1, device=row.device)
    height = max(1, budget // (n * 48))
    for some, many in zip(ids.split(height), size.split(height)):
        q, wide = queries.whole(some), max(64, budget // (64 * gallery.z.shape[1]))
        key = torch.cat([keys(queries, gallery, forbidden, q, some, rows) for rows in cut(n, wide)], 1)
        order = key.sort(dim=1, descending=True, stable=True).indices
        place = torch.empty_like(order).scatter_(1, order, count.expand_as(order))
        query = torch.arange(len(some), device=row.device).repeat_interleave(many)
        mine = slice(at, at + len(query))
        rank[mine] = place[query, row[mine]]
        at = mine.stop
    return rank


def _count_before(queries, gallery, forbidden, ids: Tensor, size: Tensor, row: Tensor, budget: int) -> Tensor:
    """The same by counting: every row is only compared with the answers asked for."""
    query = torch.arange(len(ids), device=row.device).repeat_interleave(size)
    bar = pair_keys(queries, gallery, ids[query], row[:, None], budget // 4)[:, 0]
    order = row.argsort(descending=True, stable=True)  # worst answer first: lowest key, of equals the higher row
    order = order[bar[order].argsort(stable=True)]
    order = order[query[order].argsort(stable=True)]
    bar, bar_row = bar[order], row[order]
    start = size.cumsum(0) - size
    beats = torch.zeros(len(row) + len(ids), dtype=torch.int64, device=row.device)  # rows by how many answers they beat
    steps = int(size.max()).bit_length()
    everyone = torch.arange(len(ids), device=row.device)
    for here, blocks in tiles(everyone, gallery, budget * 3 // 2, each=12):
        q, least = queries.whole(ids[here]), bar[start[here]]
        for rows in blocks:
            key = keys(queries, gallery, forbidden, q, ids[here], rows)
            ahead = key >= least[:, None]  # few, if the embedding is any good; all, if it is not
            pieces = 1 + int(ahead.sum()) * 160 // max(1, budget)
            for part in cut(len(here), -(-len(here) // pieces)):
                place, column = ahead[part].nonzero(as_tuple=True)
                who = here[part][place]
                low = _beaten(key[part][place, column], column + rows.start, bar, bar_row, start[who], size[who], steps)
                beats += torch.bincount(low + who, minlength=len(beats))  # one slot more than answers for each query
    upto = beats.cumsum(0)
    slot = torch.arange(len(row), device=row.device) + query
    rank = torch.empty_like(row)
    rank[order] = 1 + upto[(start + size + everyone)[query]] - upto[slot]
    return rank


def _beaten(value, column, bar, bar_row, low, size, steps: int) -> Int[Tensor, "M"]:
    """Where each row stands among its query's answers (those from `low` on, worst first), by halving."""
    high = low + size
    for _ in range(steps):
        middle = (low + high) // 2
        at = middle.clamp_max(len(bar) - 1)
        wins = (bar[at] < value) | ((bar[at] == value) & (bar_row[at] > column))
        wins &= low < high
        low, high = torch.where(wins, middle + 1, low), torch.where(wins, high, middle)
    return low
