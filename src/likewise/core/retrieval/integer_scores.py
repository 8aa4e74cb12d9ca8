"""Exact scores that are equal on every machine, and the rankings computed from them alone.

Embeddings are rounded to integers of 26 bits (25 for Euclidean ranking). A dot product of two such vectors fits the 53 bits
of a float64 for every order of summation, so every machine computes the same score and equal vectors tie exactly. Among equal
scores the lower row is first. Only the embeddings are stored: blocks of integers are computed when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError

UNIT_SCALE = 2.0**26
"""Factor of a unit vector before it is rounded to integers."""

CHUNK_VALUES = 2**20
"""Float64 values that `prepare` processes at a time."""

MAX_LENGTH_FACTOR = 2.0**15
"""Allowed length of the longest vector, in median lengths. All vectors share its scale, so that others keep at least ten bits."""


@dataclass(frozen=True, eq=False)
class PreparedVectors:
    """Queries or gallery, with a factor for each row that scales it to integers.

    Factors are on the device that computes; the embeddings may stay on the CPU or on disk.
    """

    z: Float[Tensor, "N D"]
    factor: Float[Tensor, "N"]  # float64; a row times its factor, rounded, gives the integers
    norm: Float[Tensor, "N"] | None  # squared length of the integers, exact; None for cosine
    scale: float  # integers / scale have the size of z (Euclidean) or unit length
    scaled_copy: Float[Tensor, "N D"] | None = None  # `scaled` of all rows, if memory allows

    @property
    def device(self) -> torch.device:
        return self.factor.device

    def __len__(self) -> int:
        return len(self.z)

    def _scaled(self, rows: slice | Tensor, by: float) -> Float[Tensor, "n D"]:
        source = rows if isinstance(rows, slice) else rows.to(self.z.device)
        # A copy: the caller's embeddings must not change.
        own = self.z[source].to(self.device).to(torch.float64, copy=True)
        return own.mul_((self.factor[rows] * by)[:, None])

    def whole(self, rows: slice | Tensor) -> Float[Tensor, "n D"]:
        """Return these rows rounded to integers, in float64."""
        return self._scaled(rows, 1).round_()

    @property
    def max_integer(self) -> float:
        """Upper bound of the integers."""
        return UNIT_SCALE if self.norm is None else UNIT_SCALE / 2

    def scaled(self, rows: slice | Tensor) -> Float[Tensor, "n D"]:
        """Return approximately `whole` / max_integer of these rows, for fast products: float32, or float16 on a GPU."""
        if self.scaled_copy is not None:
            return self.scaled_copy[rows]
        # Scaled in float64: a factor may overflow float32.
        return self._scaled(rows, 1 / self.max_integer).to(self.fast_dtype)

    @property
    def fast_dtype(self) -> torch.dtype:
        return torch.float16 if self.device.type == "cuda" else torch.float32


def prepare(z: Tensor, device: torch.device, scale: float | None, name: str, room: int = 0) -> PreparedVectors:
    """Return embeddings prepared for exact cosines or, with a scale, for exact Euclidean distances.

    Args:
        scale: from `euclidean_scale`; None: cosine.
        name: "query" or "gallery", for errors.
        room: bytes that a scaled copy of all rows may take; 0: no copy.
    """
    squared = squared_lengths(z, device)
    bad = (~torch.isfinite(squared)).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"search: embeddings must be finite, got NaN or infinity in {len(bad)} {name} rows "
            f"(first: row {int(bad[0])}); check for a diverged training, a broken image, or an overflow of float16"
        )
    factor = (UNIT_SCALE / squared.sqrt()).where(squared > 0, 0.0) if scale is None else torch.full_like(squared, scale)
    side = PreparedVectors(z, factor, None, scale or UNIT_SCALE)
    if scale is not None:
        side = replace(side, norm=torch.cat([side.whole(rows).square_().sum(1) for rows in _blocks(z)]))
    if z.numel() * side.fast_dtype.itemsize <= room:
        scaled_copy = torch.empty(z.shape, dtype=side.fast_dtype, device=device)
        for rows in _blocks(z):
            scaled_copy[rows] = side.scaled(rows)
        side = replace(side, scaled_copy=scaled_copy)
    return side


def euclidean_scale(*sides: Tensor) -> float:
    """Return the power of two that scales the longest vector to just below 25 bits."""
    squared = torch.cat([squared_lengths(z).cpu() for z in sides])
    squared = squared[squared.isfinite() & (squared > 0)]
    if not len(squared):
        return 1.0
    longest, usual = math.sqrt(squared.max()), math.sqrt(squared.median())
    if longest > MAX_LENGTH_FACTOR * usual:
        raise LikewiseError(
            f"search: for Euclidean ranking no embedding may be longer than {MAX_LENGTH_FACTOR:.0f} times the median length, "
            f"got length {longest:.3g} with median {usual:.3g}; remove that embedding, or rank by cosine"
        )
    return 2.0 ** (25 - math.ceil(math.log2(longest)))


def squared_lengths(z: Float[Tensor, "N D"], device: torch.device | None = None) -> Float[Tensor, "N"]:
    """Return the squared norms of rows in float64, bitwise equal on every device; computed on `device`, by default that of z."""
    device = device or z.device
    squared = torch.empty(len(z), dtype=torch.float64, device=device)
    for rows in _blocks(z):
        squared[rows] = _fixed_order_sum(z[rows].to(device).double().square())
    return squared


def unit_rows(z: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Return rows scaled to unit length, in float64, bitwise equal on every device. A row of zeros stays zero."""
    return z.double() / squared_lengths(z).sqrt().clamp_min(1e-150)[:, None]


def _blocks(z: Tensor) -> list[slice]:
    return row_slices(len(z), CHUNK_VALUES // z.shape[1])


def row_slices(n: int, size: int) -> list[slice]:
    """Return slices of `size` rows (at least 1) that cover `n` rows; the last one may be shorter."""
    size = max(1, size)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _fixed_order_sum(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    """Return row sums by repeated halving: elementwise additions only, hence bitwise equal on every device."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        rest = x[:, 2 * half :]
        x = torch.cat([x[:, :half] + x[:, half : 2 * half], rest], 1) if rest.shape[1] else x[:, :half] + x[:, half:]
    return x[:, 0]


class Exclusions:
    """Gallery rows that a query must not retrieve: the query's own row, given pairs, and rows of one of the query's groups.

    Args:
        queries: number of queries.
        own: gallery row of each query itself; -1: the query is not in the gallery.
        pairs: (query, gallery row), sorted by query.
        groups: for every kind of group, the group of every query and of every gallery row; -1: no group.
    """

    def __init__(
        self,
        queries: int,
        own: Tensor | None,
        pairs: Int[Tensor, "M 2"],
        groups: Sequence[tuple[Int[Tensor, "Q"], Int[Tensor, "G"]]] = (),
    ):
        self.own, self.query, self.row, self.groups = own, pairs[:, 0], pairs[:, 1], groups
        self.unknown: Callable[[Tensor, Tensor, int], None] | None = None  # hides further rows, as `mask` does
        count = torch.bincount(self.query, minlength=queries)
        self.start = torch.cat([count.new_zeros(1), count.cumsum(0)])

    def mask(self, score: Float[Tensor, "A B"], ids: Int[Tensor, "A"], first: int) -> None:
        """Set the scores of excluded rows to -inf, in place. `score`: the queries `ids` against gallery rows from `first` on."""
        if self.own is not None:
            self._set_to_minus_infinity(score, torch.arange(len(ids), device=ids.device), self.own[ids] - first)
        if len(self.query):
            count = self.start[ids + 1] - self.start[ids]
            place = torch.arange(len(ids), device=ids.device).repeat_interleave(count)
            offset = torch.arange(len(place), device=ids.device) - (count.cumsum(0) - count).repeat_interleave(count)
            self._set_to_minus_infinity(score, place, self.row[self.start[ids][place] + offset] - first)
        for of_query, of_row in self.groups:
            group = of_query[ids][:, None]
            score.masked_fill_((group == of_row[None, first : first + score.shape[1]]) & (group >= 0), -torch.inf)
        if self.unknown is not None:
            self.unknown(score, ids, first)

    def share_group(self, query: Int[Tensor, "M"], row: Int[Tensor, "M"]) -> Bool[Tensor, "M"]:
        """Return whether query `query[i]` and gallery row `row[i]` are in one group, for every i."""
        shared = torch.zeros_like(query, dtype=torch.bool)
        for of_query, of_row in self.groups:
            shared |= (of_query[query] == of_row[row]) & (of_query[query] >= 0)
        return shared

    def _set_to_minus_infinity(self, score: Tensor, place: Tensor, column: Tensor) -> None:
        """Set cells to -inf without a device sync: columns outside the block get min(score, +inf), a no-op."""
        wide = score.shape[1]
        value = torch.where((column >= 0) & (column < wide), -torch.inf, torch.inf).to(score.dtype)
        score.view(-1).scatter_reduce_(0, place * wide + column.clamp(0, wide - 1), value, "amin")


def keys(
    queries: PreparedVectors, gallery: PreparedVectors, exclusions: Exclusions, q: Tensor, ids: Tensor, rows: slice
) -> Tensor:
    """Return exact scores of queries (`q`: their integers) against a block of the gallery; -inf for excluded rows."""
    key = q @ gallery.whole(rows).T
    if gallery.norm is not None:
        key.mul_(2).sub_(gallery.norm[rows])
    exclusions.mask(key, ids, rows.start)
    return key


def pair_keys(
    queries: PreparedVectors, gallery: PreparedVectors, ids: Tensor, rows: Int[Tensor, "n K"], budget: int
) -> Float[Tensor, "n K"]:
    """Return exact scores of each query against its own K gallery rows."""
    dim = gallery.z.shape[1]
    key = torch.empty(rows.shape, dtype=torch.float64, device=rows.device)
    most = (budget if rows.is_cuda else min(budget, 2**22)) // (dim * 24)  # pairs; on a CPU limited to its cache
    for part in row_slices(len(ids), most // rows.shape[1]):
        q = queries.whole(ids[part])[:, :, None]
        for columns in row_slices(rows.shape[1], max(most, 64)):
            some = rows[part, columns]
            key[part, columns] = torch.bmm(gallery.whole(some.flatten()).view(*some.shape, dim), q)[:, :, 0]
    return key if gallery.norm is None else 2 * key - gallery.norm[rows]


def readable(key: Float[Tensor, "C K"], queries: PreparedVectors, ids: Int[Tensor, "C"]) -> Float[Tensor, "C K"]:
    """Return exact keys as similarities: the cosine, or minus the Euclidean distance; NaN for a key of -inf."""
    if queries.norm is None:
        return (key / queries.scale**2).masked_fill(key == -torch.inf, torch.nan)
    squared = (queries.norm[ids][:, None] - key).clamp_min(0)
    return (-squared.sqrt() / queries.scale).masked_fill(key == -torch.inf, torch.nan)


def exhaustive(
    queries: PreparedVectors,
    gallery: PreparedVectors,
    exclusions: Exclusions,
    ids: Int[Tensor, "n"],
    k: int,
    budget: int,
) -> Iterator[tuple[Tensor, Int[Tensor, "C K"], Float[Tensor, "C K"]]]:
    """Yield chunks of (query numbers, their first k gallery rows by exact score, the scores); -1 where no row is left."""
    for some, blocks in tiles(ids, gallery, budget, each=32, k=k):
        q = queries.whole(some)
        best_key = torch.full((len(some), k), -torch.inf, dtype=torch.float64, device=q.device)
        best_row = torch.full((len(some), k), -1, dtype=torch.int64, device=q.device)
        for rows in blocks:
            key, row = _first(keys(queries, gallery, exclusions, q, some, rows), k)
            both = torch.cat([best_key, key], 1)  # lower rows come first
            key, order = both.sort(dim=1, descending=True, stable=True)
            best_key = key[:, :k]
            best_row = torch.cat([best_row, row + rows.start], 1).gather(1, order[:, :k])
        yield some, best_row.masked_fill(best_key == -torch.inf, -1), best_key


def tiles(
    ids: Tensor, gallery: PreparedVectors, budget: int, each: int, k: int = 1
) -> Iterator[tuple[Tensor, list[slice]]]:
    """Yield (query numbers, slices of the gallery) such that one tile fits the budget.

    Half of the budget is for the pairs, `each` bytes per pair, the other half for the integers of queries and gallery. The number
    of queries is limited so that the k kept rows of all queries take at most a quarter of a tile.
    """
    pairs, most = max(4096, budget // 2 // each), max(64, budget // (64 * gallery.z.shape[1]))
    height = min(len(ids), most, max(pairs // len(gallery), int(pairs**0.5)), max(1, pairs // (4 * k)))
    for some in ids.split(height):
        yield some, row_slices(len(gallery), min(most, pairs // height))


def _first(key: Float[Tensor, "A B"], k: int) -> tuple[Float[Tensor, "A K"], Int[Tensor, "A K"]]:
    """Return keys and columns of the first k of every row: by descending key, equal keys by column."""
    if k >= key.shape[1]:
        key, column = key.sort(dim=1, descending=True, stable=True)
        return key, column
    best = key.topk(k + 1, dim=1)
    column = best.indices[:, :k].sort(dim=1).values
    ordered, order = key.gather(1, column).sort(dim=1, descending=True, stable=True)
    column = column.gather(1, order)
    tied = (best.values[:, k - 1] == best.values[:, k]) & (best.values[:, k] > -torch.inf)
    tied = tied.nonzero()[:, 0]  # the tie crosses rank k, so all tied columns must be sorted
    if len(tied):
        full = key[tied].sort(dim=1, descending=True, stable=True)
        ordered[tied], column[tied] = full.values[:, :k], full.indices[:, :k]
    return ordered, column


def places(
    queries: PreparedVectors,
    gallery: PreparedVectors,
    exclusions: Exclusions,
    query: Int[Tensor, "M"],
    row: Int[Tensor, "M"],
    budget: int,
) -> Int[Tensor, "M"]:
    """Return the ranks, from 1, of the pairs (query `query[i]`, gallery row `row[i]`). `query` must ascend."""
    rank = torch.empty_like(query)
    queried, count = query.unique_consecutive(return_counts=True)
    per_tile = max(1, budget // (8 * max(1, int(count.max()) if len(count) else 1) * 32))
    at = 0
    for ids, size in zip(queried.split(per_tile), count.split(per_tile)):
        pairs = slice(at, at + int(size.sum()))
        # with many rows per query, sorting is cheaper
        compute = _count_before if 16 * len(ids) > pairs.stop - at else _sort_all
        rank[pairs] = compute(queries, gallery, exclusions, ids, size, row[pairs], budget)
        at = pairs.stop
    return rank


def _sort_all(queries, gallery, exclusions, ids: Tensor, size: Tensor, row: Tensor, budget: int) -> Tensor:
    """Return the ranks of the gallery rows `row` by sorting the whole gallery; `size` rows belong to each query."""
    n, rank, at = len(gallery), torch.empty_like(row), 0
    count = torch.arange(1, n + 1, device=row.device)
    height = max(1, budget // (n * 48))
    for some, many in zip(ids.split(height), size.split(height)):
        q, wide = queries.whole(some), max(64, budget // (64 * gallery.z.shape[1]))
        key = torch.cat([keys(queries, gallery, exclusions, q, some, rows) for rows in row_slices(n, wide)], 1)
        order = key.sort(dim=1, descending=True, stable=True).indices
        place = torch.empty_like(order).scatter_(1, order, count.expand_as(order))
        query = torch.arange(len(some), device=row.device).repeat_interleave(many)
        mine = slice(at, at + len(query))
        rank[mine] = place[query, row[mine]]
        at = mine.stop
    return rank


def _count_before(queries, gallery, exclusions, ids: Tensor, size: Tensor, row: Tensor, budget: int) -> Tensor:
    """Return what `_sort_all` returns, by counting the gallery rows that precede each row of `row`."""
    query = torch.arange(len(ids), device=row.device).repeat_interleave(size)
    bar = pair_keys(queries, gallery, ids[query], row[:, None], budget // 4)[:, 0]
    order = last_rank_first(query, row, bar)
    bar, bar_row = bar[order], row[order]
    start = size.cumsum(0) - size
    beats = torch.zeros(len(row) + len(ids), dtype=torch.int64, device=row.device)  # as for `ranks`
    everyone = torch.arange(len(ids), device=row.device)
    for here, blocks in tiles(everyone, gallery, budget * 3 // 2, each=12):
        q, least = queries.whole(ids[here]), bar[start[here]]
        for rows in blocks:
            key = keys(queries, gallery, exclusions, q, ids[here], rows)
            ahead = key >= least[:, None]  # few for a good embedding
            pieces = 1 + int(ahead.sum()) * 160 // max(1, budget)
            for part in row_slices(len(here), -(-len(here) // pieces)):
                place, column = ahead[part].nonzero(as_tuple=True)
                number = here[part][place]
                low = count_beaten(
                    key[part][place, column], column + rows.start, bar, bar_row, start[number], size[number]
                )
                beats += torch.bincount(low + number, minlength=len(beats))
    rank = torch.empty_like(row)
    rank[order] = ranks(beats, query, size)
    return rank


def last_rank_first(query: Int[Tensor, "M"], row: Int[Tensor, "M"], key: Float[Tensor, "M"]) -> Int[Tensor, "M"]:
    """Return the order of pairs by query and, within a query, from the last rank to the first: low keys, then high rows."""
    order = row.argsort(descending=True, stable=True)
    order = order[key[order].argsort(stable=True)]
    return order[query[order].argsort(stable=True)]


def ranks(beats: Int[Tensor, "S"], query: Int[Tensor, "M"], size: Int[Tensor, "Q"]) -> Int[Tensor, "M"]:
    """Return the ranks, from 1, of the rows of every query, which must be in the order of `last_rank_first`.

    Args:
        beats: numbers of gallery rows: slot j of a query counts those that precede its first j rows and no other. A query has
            `size` + 1 slots.
        query: query of each row, from 0.
        size: rows of each query.
    """
    upto, end = beats.cumsum(0), (size + 1).cumsum(0) - 1
    return 1 + upto[end[query]] - upto[torch.arange(len(query), device=query.device) + query]


def count_beaten(value, column, bar, bar_row, low, size) -> Int[Tensor, "M"]:
    """Return how many entries of `bar` each gallery row precedes, plus `low`, by binary search.

    The entries of a query are bar[low : low + size], last rank first.
    """
    high = low + size
    for _ in range(int(size.max()).bit_length() if len(size) else 0):
        middle = (low + high) // 2
        at = middle.clamp_max(len(bar) - 1)
        wins = (bar[at] < value) | ((bar[at] == value) & (bar_row[at] > column))
        wins &= low < high
        low, high = torch.where(wins, middle + 1, low), torch.where(wins, high, middle)
    return low
