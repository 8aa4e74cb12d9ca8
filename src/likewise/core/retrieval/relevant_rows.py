"""Which gallery rows are relevant to a query: those of its class, or those of enough relevance, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.retrieval.integer_scores import Exclusions, row_slices

ANY_RELEVANCE = torch.finfo(torch.float32).tiny
"""Threshold at which every relevance above 0 counts."""


class EqualLabels:
    """Gallery rows of the query's class are relevant."""

    def __init__(self, y: Int[Tensor, "Q"], gallery_y: Int[Tensor, "G"]):
        self.y, self.gallery_y = y, gallery_y

    def count(self, exclusions: Exclusions) -> Int[Tensor, "Q"]:
        """Return the number of relevant gallery rows of every query, without excluded rows."""
        return count_relevant(self.y, self.gallery_y, exclusions)

    def match(self, ids: Int[Tensor, "C"], row: Int[Tensor, "C K"]) -> tuple[Bool[Tensor, "C K"], None]:
        """Return whether the rows of some queries are relevant (a row of -1 is not), and None for their values."""
        return (self.gallery_y[row.clamp_min(0)] == self.y[ids][:, None]) & (row >= 0), None

    def pairs(self, exclusions: Exclusions, asked: Bool[Tensor, "Q"], listed_hits: Sequence[Tensor], budget: int):
        """Yield chunks of (query, gallery row): the relevant rows of the queries in `asked`, outside `listed_hits`."""
        if not asked.any():
            return
        order = self.gallery_y.argsort(stable=True)
        sorted_y, n = self.gallery_y[order], len(self.gallery_y)
        first, end = torch.searchsorted(sorted_y, self.y), torch.searchsorted(sorted_y, self.y, right=True)
        known = torch.cat([query * n + row for query, row in (listed_hits, excluded_pairs(exclusions))]).sort().values
        ids = asked.nonzero()[:, 0]
        most = max(1, int((end - first)[ids].max()))
        for some in ids.split(max(1, budget // (most * 64))):
            count = (end - first)[some]
            query = some.repeat_interleave(count)
            offset = torch.arange(len(query), device=query.device) - (count.cumsum(0) - count).repeat_interleave(count)
            row = order[first[query] + offset]
            new = ~_is_among(known, query * n + row) & ~exclusions.share_group(query, row)
            yield query[new], row[new]


@dataclass(frozen=True, eq=False)
class RowRelevance:
    """Relevance of queries to gallery rows, as `rank` takes it. NaN: not known, so that the row is no result of the query.

    `values` maps ids of queries and of gallery rows to the values of all their pairs, 0 to 1.
    """

    values: Callable[[Int[Tensor, "A"], Int[Tensor, "B"]], Float[Tensor, "A B"]]
    query: Int[Tensor, "Q"]  # ids
    gallery: Int[Tensor, "G"]
    threshold: float  # a row of this relevance or more is relevant
    best: int = 0  # number of highest values of every query to return
    hit_values: bool = False  # whether to return the value of every hit
    row_bytes: int = 0  # bytes that `values` needs for each gallery row, besides its result


class GradedRows:
    """Gallery rows of enough relevance are relevant. Values are computed in blocks, or once if few ids are in use.

    Args:
        budget: bytes of working memory.
    """

    def __init__(self, given: RowRelevance, device: torch.device, budget: int):
        self.given, self.threshold, self.budget = given, given.threshold, budget
        self.query, self.gallery = given.query.to(device).long(), given.gallery.to(device).long()
        self.device, self.unknown = device, False
        self.table: Tensor | None = None
        used, places = zip(*(side.unique(return_inverse=True) for side in (self.query, self.gallery)), strict=True)
        self.wide = len(self.gallery)  # rows whose values are computed together
        if given.row_bytes:
            self.wide = max(1, min(self.wide, budget // (2 * given.row_bytes)))
        if len(used[0]) * len(used[1]) * 16 <= budget and len(used[1]) * given.row_bytes <= budget:
            self.table, (self.query, self.gallery) = given.values(*used).float(), places

    def block(self, ids: Int[Tensor, "A"], rows: slice) -> Float[Tensor, "A B"]:
        """Return the values of some queries and a range of gallery rows."""
        if self.table is not None:
            return self.table[self.query[ids][:, None], self.gallery[rows][None, :]]
        given = self.gallery[rows]
        parts = row_slices(len(given), self.wide)
        if len(parts) == 1:
            return self.given.values(self.query[ids], given).float()
        value = torch.empty(len(ids), len(given), device=self.device)
        for part in parts:
            value[:, part] = self.given.values(self.query[ids], given[part]).float()
        return value

    def tiles(self, ids: Int[Tensor, "n"], each: int = 64) -> Iterator[tuple[Int[Tensor, "A"], list[slice]]]:
        """Yield (queries, ranges of gallery rows) such that one block of `each` bytes per pair fits the budget."""
        n, pairs = len(self.gallery), max(64, self.budget // each)
        for some in ids.split(max(1, pairs // (n if self.table is not None else self.wide))):
            yield some, row_slices(n, pairs // len(some))

    def visible(self, exclusions: Exclusions, ids: Int[Tensor, "A"], rows: slice) -> Float[Tensor, "A B"]:
        """Return a block of values, -inf for rows that are excluded or of unknown relevance."""
        block = self.block(ids, rows)
        block = block.masked_fill(block.isnan(), -torch.inf)
        exclusions.mask(block, ids, rows.start)
        return block

    def hide_unknown(self, score: Float[Tensor, "A B"], ids: Int[Tensor, "A"], first: int) -> None:
        """Set the scores of rows of unknown relevance to -inf, in place."""
        wide = score.shape[1]
        for part in row_slices(len(ids), max(64, self.budget // 64) // wide):
            score[part].masked_fill_(self.block(ids[part], slice(first, first + wide)).isnan(), -torch.inf)

    def survey(self, exclusions: Exclusions) -> tuple[Int[Tensor, "Q"], Float[Tensor, "Q B"]]:
        """Return the number of relevant rows of every query and its highest values, descending; set `unknown`."""
        queries, best = len(self.query), self.given.best
        count = torch.zeros(queries, dtype=torch.int64, device=self.device)
        top = torch.zeros(queries, best, device=self.device)
        unknown = torch.zeros((), dtype=torch.bool, device=self.device)
        for ids, slices in self.tiles(torch.arange(queries, device=self.device)):
            for rows in slices:
                unknown |= self.block(ids, rows).isnan().any()
                block = self.visible(exclusions, ids, rows)
                count[ids] += (block >= self.threshold).sum(1)
                if best:
                    top[ids] = torch.cat([top[ids], block.clamp_min_(0)], 1).topk(best, dim=1).values
        self.unknown = bool(unknown)
        return count, top

    def limits(self, exclusions: Exclusions) -> tuple[float, float]:
        """Return the lowest and the highest known value, up to the first block with a value below the threshold."""
        low, high = torch.inf, -torch.inf
        for ids, slices in self.tiles(torch.arange(len(self.query), device=self.device)):
            for rows in slices:
                block = self.visible(exclusions, ids, rows)
                known = block[block >= 0]
                if len(known):
                    low, high = min(low, float(known.min())), max(high, float(known.max()))
                if low < self.threshold:
                    return low, high
        return low, high

    def match(self, ids: Int[Tensor, "C"], row: Int[Tensor, "C K"]) -> tuple[Bool[Tensor, "C K"], Float[Tensor, "C K"]]:
        """Return whether the rows of some queries are relevant, and their values; a row of -1 is not, and has the value NaN."""
        value = self.at(ids.repeat_interleave(row.shape[1]), row.clamp_min(0).flatten()).view(row.shape)
        value = value.masked_fill(row < 0, torch.nan)
        return value >= self.threshold, value

    def at(self, query: Int[Tensor, "M"], row: Int[Tensor, "M"]) -> Float[Tensor, "M"]:
        """Return the values of pairs (query `query[i]`, gallery row `row[i]`)."""
        if self.table is not None:
            return self.table[self.query[query], self.gallery[row]]
        value = torch.empty(len(query), device=self.device)
        ids, number = query.unique(return_inverse=True)
        number, order = number.sort(stable=True)
        for some, slices in self.tiles(torch.arange(len(ids), device=self.device)):
            first = int(some[0])
            low, high = torch.searchsorted(number, torch.stack([some[0], some[-1] + 1])).tolist()
            mine = order[low:high]
            for rows in slices:
                block = self.block(ids[some], rows)
                inside = (row[mine] >= rows.start) & (row[mine] < rows.stop)
                at = number[low:high][inside] - first, row[mine][inside] - rows.start
                value[mine[inside]] = block[at]
        return value

    def pairs(self, exclusions: Exclusions, asked: Bool[Tensor, "Q"], listed_hits: Sequence[Tensor], budget: int):
        """Yield chunks of (query, gallery row): the relevant rows of the queries in `asked`, outside `listed_hits`."""
        n = len(self.gallery)
        known = (listed_hits[0] * n + listed_hits[1]).sort().values
        for ids, slices in self.tiles(asked.nonzero()[:, 0]) if asked.any() else ():
            codes = []
            for rows in slices:
                place, column = (self.visible(exclusions, ids, rows) >= self.threshold).nonzero(as_tuple=True)
                codes.append(ids[place] * n + column + rows.start)
            code = torch.cat(codes).sort().values
            code = code[~_is_among(known, code)]
            yield code // n, code % n


def _is_among(known: Int[Tensor, "M"], code: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Return whether each number is among the ascending numbers `known`."""
    if not len(known):
        return torch.zeros_like(code, dtype=torch.bool)
    return known[torch.searchsorted(known, code).clamp_max(len(known) - 1)] == code


def count_relevant(y, gallery_y, exclusions: Exclusions) -> Int[Tensor, "Q"]:
    """Return the number of gallery rows of the class of every query, without excluded rows."""
    labels = torch.cat([y, gallery_y]).unique()
    yq, yg = torch.searchsorted(labels, y), torch.searchsorted(labels, gallery_y)
    count = torch.bincount(yg, minlength=len(labels))[yq]
    query, row = excluded_pairs(exclusions)
    for kinds in range(1, len(exclusions.groups) + 1):  # rows that share one group or more, by inclusion and exclusion
        for chosen in combinations(exclusions.groups, kinds):
            count = count + (-1) ** kinds * _count_equal(((yq, yg), *chosen))
    mates = (yq[query] == yg[row]) & ~exclusions.share_group(query, row)  # rows of a group are subtracted already
    return count - torch.bincount(query[mates], minlength=len(y))


def _count_equal(keys: Sequence[tuple[Int[Tensor, "Q"], Int[Tensor, "G"]]]) -> Int[Tensor, "Q"]:
    """Return the number of gallery rows that agree with each query in all keys; a key of -1 agrees with none."""
    joint = torch.zeros_like(torch.cat(keys[0]))
    valid = torch.ones_like(joint, dtype=torch.bool)
    for of_query, of_row in keys:
        own = torch.cat([of_query, of_row])
        values, number = own.unique(return_inverse=True)
        joint = (joint * len(values) + number).unique(return_inverse=True)[1]  # small numbers again: no overflow
        valid &= own >= 0
    queries = len(keys[0][0])
    count = torch.bincount(joint[queries:][valid[queries:]], minlength=int(joint.max()) + 1)
    return torch.where(valid[:queries], count[joint[:queries]], 0)


def excluded_pairs(exclusions: Exclusions) -> tuple[Int[Tensor, "M"], Int[Tensor, "M"]]:
    """Return the excluded (query, gallery row) pairs, without those excluded by group."""
    if exclusions.own is None:
        return exclusions.query, exclusions.row
    in_gallery = (exclusions.own >= 0).nonzero()[:, 0]
    return torch.cat([in_gallery, exclusions.query]), torch.cat([exclusions.own[in_gallery], exclusions.row])
