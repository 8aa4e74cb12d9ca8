"""Ranks of all hits, counted in the pass that proposes candidates; exact scores decide where its error bound cannot.

A hit has rank 1 + the number of gallery rows before it. Approximate scores place nearly all rows before or after every hit of a
query, because they differ by more than the error bound. The few others are scored exactly afterwards.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.retrieval.integer_scores import (
    PreparedVectors,
    count_beaten,
    last_rank_first,
    pair_keys,
    ranks,
    row_slices,
)

MAX_MEAN_HITS = 16
"""Hits per query, in the mean, up to which ranks are counted; with more, sorting whole rows is cheaper."""

MAX_OPEN_ROWS = 1024
"""Gallery rows of a query that the error bound may leave open; with more, the query is not counted."""

SCORE_RANGE_SIZE = 8.0
"""Larger than the range of approximate scores: added per query, it keeps the scores of queries apart in one sorted list."""


class HitCounter:
    """Counts the gallery rows before every hit, block by block of approximate scores.

    Args:
        query: query of every hit, ascending.
        row: gallery row of every hit.
        error: upper bound on the error of an approximate score.
        budget: bytes of working memory.
    """

    def __init__(
        self, queries: PreparedVectors, gallery: PreparedVectors, query: Tensor, row: Tensor, error: float, budget: int
    ):
        key = pair_keys(queries, gallery, query, row[:, None], budget // 2)[:, 0]
        order = last_rank_first(query, row, key)
        n, device = len(queries), row.device
        self.queries, self.gallery, self.budget = queries, gallery, budget
        self.query, self.row, self.key = query, row[order], key[order]
        self.size = torch.bincount(query, minlength=n)
        self.start = self.size.cumsum(0) - self.size
        self.error = error + n * 2.0**-47  # the second part: sums with SCORE_RANGE_SIZE * query are rounded
        score = self.key / gallery.max_integer**2
        self.bar = query * SCORE_RANGE_SIZE + score
        self.least = torch.full((n,), torch.inf, device=device)  # scores up to this are after all hits of the query
        has = self.size > 0
        self.least[has] = (
            (score[self.start[has]] - self.error).float().nextafter(torch.tensor(-torch.inf, device=device))
        )
        self.beats = torch.zeros(len(row) + n, dtype=torch.int64, device=device)  # as for `ranks`
        nothing = torch.zeros(0, dtype=torch.int32, device=device)
        self.open = [(nothing, nothing)]  # query and gallery row of the pairs to score exactly
        self.open_count = torch.zeros(n, dtype=torch.int64, device=device)
        self.open_room = budget // 64  # pairs that may still be kept; an eighth of the budget
        self.seen = torch.zeros(n, dtype=torch.bool, device=device)  # queries of which every block was taken

    def take(self, ids: Int[Tensor, "A"], first: int, block: Float[Tensor, "A B"]) -> None:
        """Count a block of approximate scores: the queries `ids` against gallery rows from `first` on."""
        ahead = block > self.least[ids][:, None]  # few for a good embedding
        pieces = 1 + int(ahead.count_nonzero()) * 1280 // max(1, self.budget)
        for part in row_slices(len(ids), -(-len(ids) // pieces)):
            if block.is_contiguous():
                place, column = ahead[part].nonzero(as_tuple=True)
            else:  # a transposed block is read in its memory order
                column, place = ahead[part].T.nonzero(as_tuple=True)
            self._count(ids[part][place], column + first, block[part][place, column].double())

    def _count(self, query: Tensor, row: Tensor, score: Tensor) -> None:
        """Count gallery rows by the hits of the query that they are before; keep those that the error bound cannot place."""
        at = query * SCORE_RANGE_SIZE + score
        low = torch.searchsorted(self.bar, at - self.error)
        high = torch.searchsorted(self.bar, at + self.error, right=True)
        placed = low == high
        slot = low[placed] + query[placed]
        self.beats.index_add_(0, slot, torch.ones_like(slot))
        query, row = query[~placed], row[~placed]
        if len(query) > self.open_room:
            self.open_count[query] = MAX_OPEN_ROWS + 1
            return
        self.open_count.index_add_(0, query, torch.ones_like(query))
        few = self.open_count[query] <= MAX_OPEN_ROWS
        self.open.append((query[few].int(), row[few].int()))
        self.open_room -= len(self.open[-1][0])

    @property
    def counted(self) -> Bool[Tensor, "Q"]:
        """Queries whose ranks `hits` can return."""
        return self.seen & (self.open_count <= MAX_OPEN_ROWS)

    def hits(self, wanted: Bool[Tensor, "Q"]) -> tuple[Int[Tensor, "H"], Int[Tensor, "H"], Int[Tensor, "H"]]:
        """Return query, gallery row and rank of the hits of the wanted queries, which must be `counted`. Called once."""
        open_query, open_row = (torch.cat(parts) for parts in zip(*self.open))
        mine = wanted[open_query]
        open_query, open_row = open_query[mine], open_row[mine]
        for part in row_slices(len(open_query), self.budget // 320):
            query, row = open_query[part].long(), open_row[part].long()
            key = pair_keys(self.queries, self.gallery, query, row[:, None], self.budget // 2)[:, 0]
            low = count_beaten(key, row, self.key, self.row, self.start[query], self.size[query])
            self.beats.index_add_(0, low + query, torch.ones_like(low))
        mine = wanted[self.query]
        return self.query[mine], self.row[mine], ranks(self.beats, self.query, self.size)[mine]
