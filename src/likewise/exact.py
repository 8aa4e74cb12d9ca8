"""The engine behind `search`: the first rows of a ranking, exactly, in bounded memory.

Embeddings are rounded to integers of 26 bits (25 for Euclidean ranking). A dot product of two such vectors fits the 53 bits
of a float64 whatever the order of summation, so every machine gets the same number and equal vectors tie exactly. Most of the
work is still done in float32: it proposes k + slack candidates, these are scored exactly, and a query whose proposal cannot be
proven complete (many near-equal neighbours) is scored exactly against the whole gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.errors import LikewiseError


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or gallery, ready to be compared."""

    whole: Int[Tensor, "N D"]  # int32
    real: Float[Tensor, "N D"]  # whole / scale, in float32
    norm: Float[Tensor, "N"] | None  # squared length of `whole` in float64, exact; None for cosine
    group: Int[Tensor, "N"] | None
    scale: float


def prepare(z: Tensor, group: Tensor | None, scale: float | None, name: str) -> Side:
    """Whole-number vectors: unit ones times 2^26, or, with a scale, the raw ones times that."""
    whole = torch.empty(z.shape, dtype=torch.int32, device=z.device)
    norm = torch.empty(len(z), dtype=torch.float64, device=z.device)
    for i in range(0, len(z), 4096):
        part = z[i : i + 4096].double()
        length = _fixed_order_sum(part * part)
        bad = (~torch.isfinite(length)).nonzero()[:, 0]
        if len(bad):
            count = int((~torch.isfinite(z).all(1)).sum())
            raise LikewiseError(
                f"search: embeddings must be finite, got NaN or infinity in {count} {name} rows "
                f"(first: row {i + int(bad[0])}); look for a diverged training or a broken image"
            )
        if scale is None:
            part = part / length.sqrt().clamp_min(torch.finfo(torch.float64).tiny)[:, None] * 2.0**26
        else:
            part = part * scale
        part = part.round_()
        whole[i : i + 4096] = part.int()
        norm[i : i + 4096] = part.square_().sum(1)  # exact: integers below 2^53
    real = whole.float().mul_(1 / (scale or 2.0**26))
    return Side(whole, real, norm if scale else None, group, scale or 2.0**26)


def euclidean_scale(*sides: Tensor) -> float:
    """The power of two that puts the longest vector just below 25 bits."""
    longest = max(float(t.double().square().sum(1).max()) for t in sides) ** 0.5
    return 2.0 ** (25 - torch.tensor(max(longest, 1e-30), dtype=torch.float64).log2().ceil().item())


def _fixed_order_sum(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    """Sum of rows by halving: only elementwise additions, so the same bits on every device."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        rest = x[:, 2 * half :]
        x = torch.cat([x[:, :half] + x[:, half : 2 * half], rest], 1) if rest.shape[1] else x[:, :half] + x[:, half:]
    return x[:, 0]


def top(
    queries: Side,
    gallery: Side,
    own: Tensor,
    depth: Tensor,
    budget: int,
    same: bool,
    progress: Callable[[float], None],
) -> Iterator[tuple[Int[Tensor, "C"], Int[Tensor, "C K"], Float[Tensor, "C K"]]]:
    """Chunks of queries, each with its gallery rows in exact order and their keys, as deep as the chunk's deepest query.

    Args:
        own: each query's own row in the gallery, or -1.
        depth: how far down each query must be known.
        budget: bytes of working memory.
        same: the queries are the gallery.
        progress: called with the share of the work that is done.
    """
    n, dim = gallery.whole.shape
    keep = min(n, _with_slack(int(depth.max())))
    proposal, before = None, 0.0
    if same and keep < n // 8 and len(own) * keep * 12 <= budget // 2:
        before = 0.9  # about what the proposals cost
        proposal = _propose_symmetric(gallery, keep, budget // 2, lambda share: progress(before * share))
    order = depth.argsort(stable=True)  # queries of like depth together: no chunk goes deeper than it must
    at = 0
    while at < len(order):
        ids = order[at : at + max(1, budget // (n * 12 if proposal is None else keep * dim * 16))]
        keep_here = min(n, _with_slack(int(depth[ids].max())))
        if keep_here >= max(n // 8, 2) and n > 64:  # so deep that scoring everything exactly is cheaper
            ids = ids[: max(1, budget // (n * 24))]
            row, key = _exhaustive(queries, gallery, own, ids, int(depth[ids].max()))
        else:
            k = int(depth[ids].max())
            if proposal is None:
                candidate, floor = _propose(queries, gallery, own, ids, keep_here)
            else:
                candidate, floor = proposal[0][ids], proposal[1][ids]
            row, key, proven = _rescore(queries, gallery, ids, candidate, floor, k, budget)
            for part in (~proven).nonzero()[:, 0].split(max(1, budget // (n * 24))):
                row[part], key[part] = _exhaustive(queries, gallery, own, ids[part], k)
        yield ids, row, key
        at += len(ids)
        progress(before + (1 - before) * at / len(order))


def readable(key: Float[Tensor, "C K"], queries: Side, ids: Int[Tensor, "C"]) -> Float[Tensor, "C K"]:
    """Exact keys as the similarity a person reads: the cosine, or minus the distance."""
    if queries.norm is None:
        return (key / queries.scale**2).masked_fill(key == -torch.inf, torch.nan)
    squared = (queries.norm[ids][:, None] - key).clamp_min(0)
    return (-squared.sqrt() / queries.scale).masked_fill(key == -torch.inf, torch.nan)


def _with_slack(k: int) -> int:
    return k + 8 + k // 8


def _approximate(q: Tensor, gallery: Side, rows: slice = slice(None)) -> Tensor:
    """Scores in float32, in the units of `real`."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.autocast(q.device.type, enabled=False):
            dots = q @ gallery.real[rows].T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return dots if gallery.norm is None else dots.mul_(2).sub_((gallery.norm[rows] / gallery.scale**2).float())


def _forbid(score: Tensor, queries: Side, gallery: Side, ids: Tensor, own: Tensor, rows: slice = slice(None)) -> None:
    """Take the query itself and its group out of the running, in place."""
    column = own[ids] - (rows.start or 0)
    here = (own[ids] >= 0) & (column >= 0) & (column < score.shape[1])
    score[here.nonzero()[:, 0], column[here]] = -torch.inf
    if queries.group is not None and gallery.group is not None:
        group = queries.group[ids][:, None]
        score.masked_fill_((group == gallery.group[rows][None, :]) & (group >= 0), -torch.inf)


def _propose(queries: Side, gallery: Side, own: Tensor, ids: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep` best gallery rows by float32, and the worst score among them (nothing left out scored more)."""
    score = _approximate(queries.real[ids], gallery)
    _forbid(score, queries, gallery, ids, own)
    best = score.topk(keep, dim=1)
    return best.indices.masked_fill(best.values == -torch.inf, -1), best.values[:, -1]


def _propose_symmetric(both: Side, keep: int, budget: int, progress: Callable[[float], None]) -> tuple[Tensor, Tensor]:
    """`_propose` for a set against itself: every block of products serves its rows and its columns."""
    n, device = len(both.whole), both.whole.device
    best = _Best(n, keep, device)
    everyone = torch.arange(n, device=device)
    size = min(4096, max(64, int((budget / 32) ** 0.5)))
    blocks = [slice(i, min(i + size, n)) for i in range(0, n, size)]
    length = None if both.norm is None else (both.norm / both.scale**2).float()
    done, pairs = 0, len(blocks) * (len(blocks) + 1) // 2
    for far in range(len(blocks)):  # the diagonal first: it sets the bars that later blocks must clear
        for a, b in zip(blocks, blocks[far:], strict=False):
            block = _approximate(both.real[a], both, b)
            _forbid(block, both, both, everyone[a], everyone, b)
            best.take(a, b.start, block)
            if a != b:
                # Euclidean: the block holds 2 ab - |b|^2, and the other side wants 2 ab - |a|^2
                other = block.T if length is None else block.T + (length[b][:, None] - length[a][None, :])
                best.take(b, a.start, other)
            done += 1
            progress(done / pairs)
    return best.row.masked_fill(best.score == -torch.inf, -1), best.score[:, -1]


class _Best:
    """The best scores of every row so far, and where they were found."""

    def __init__(self, n: int, keep: int, device: torch.device):
        self.keep = keep
        self.score = torch.full((n, keep), -torch.inf, device=device)
        self.row = torch.full((n, keep), -1, dtype=torch.int64, device=device)

    def take(self, mine: slice, first: int, block: Float[Tensor, "A B"]) -> None:
        """Let a block of scores compete: rows `mine` against gallery rows from `first` on."""
        bar = self.score[mine, -1]
        if block.is_cuda or (bar == -torch.inf).any():
            return self._take_all(mine, first, block)
        if block.is_contiguous():
            place, column = (block > bar[:, None]).nonzero(as_tuple=True)  # few: most never come near the best
        else:  # a transposed block is read in the order it lies in memory
            column, place = (bar[None, :] < block.T).nonzero(as_tuple=True)
            place, order = place.sort(stable=True)
            column = column[order]
        count = torch.bincount(place, minlength=len(bar))
        most = int(count.max())
        if most > 4 * self.keep:
            return self._take_all(mine, first, block)
        if most:
            seat = torch.arange(len(place)) - (count.cumsum(0) - count)[place]
            score = torch.full((len(bar), most), -torch.inf)
            row = torch.full((len(bar), most), -1, dtype=torch.int64)
            score[place, seat], row[place, seat] = block[place, column], column + first
            self._merge(mine, count.nonzero()[:, 0], score, row)

    def _take_all(self, mine: slice, first: int, block: Tensor) -> None:
        found = block.contiguous().topk(min(self.keep, block.shape[1]), dim=1)
        self._merge(mine, slice(None), found.values, found.indices + first)

    def _merge(self, mine: slice, which, score: Tensor, row: Tensor) -> None:
        scores = torch.cat([self.score[mine][which], score[which]], 1)
        rows = torch.cat([self.row[mine][which], row[which]], 1)
        kept, at = scores.topk(self.keep, dim=1)
        self.score[mine][which], self.row[mine][which] = kept, rows.gather(1, at)


def _rescore(queries: Side, gallery: Side, ids: Tensor, candidate: Tensor, floor: Tensor, k: int, budget: int):
    """Exact keys of the candidates, the first k in order, and whether nothing outside them can belong there."""
    candidate = candidate.sort(dim=1).values  # ascending rows, so that a stable sort by key leaves ties in row order
    key = torch.empty(candidate.shape, dtype=torch.float64, device=candidate.device)
    size = max(1, min(budget, 2**25) // (gallery.whole.shape[1] * candidate.shape[1] * 8))  # what a cache holds
    for i in range(0, len(ids), size):
        part = candidate[i : i + size].clamp_min(0)
        vectors = gallery.whole[part].double()
        key[i : i + size] = torch.bmm(vectors, queries.whole[ids[i : i + size]].double()[:, :, None])[:, :, 0]
    if gallery.norm is not None:
        key = 2 * key - gallery.norm[candidate.clamp_min(0)]
    key.masked_fill_(candidate < 0, -torch.inf)
    key, order = key.sort(dim=1, descending=True, stable=True)
    row, key = candidate.gather(1, order)[:, :k], key[:, :k]
    everything = candidate.shape[1] >= len(gallery.whole)
    proven = key[:, -1] > (floor.double() + _float32_error(queries, gallery)) * gallery.scale**2
    return row, key, proven | (floor == -torch.inf) | everything


def _float32_error(queries: Side, gallery: Side) -> float:
    """No float32 score is further from the truth than this, whatever the order of summation."""
    dim = gallery.whole.shape[1]
    if gallery.norm is None:
        return (dim + 4) * 2.0**-24
    longest = max(float(queries.norm.max()), float(gallery.norm.max())) / gallery.scale**2
    return (4 * dim + 16) * 2.0**-24 * longest


def _exhaustive(queries: Side, gallery: Side, own: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k rows by exact keys against the whole gallery."""
    n = len(gallery.whole)
    q = queries.whole[ids].double()
    key = torch.empty(len(ids), n, dtype=torch.float64, device=q.device)
    for i in range(0, n, 8192):
        key[:, i : i + 8192] = q @ gallery.whole[i : i + 8192].double().T
    if gallery.norm is not None:
        key.mul_(2).sub_(gallery.norm)
    _forbid(key, queries, gallery, ids, own)
    best = key.topk(min(k + 1, n), dim=1)
    row = best.indices[:, :k].sort(dim=1).values
    ordered, order = key.gather(1, row).sort(dim=1, descending=True, stable=True)
    row = row.gather(1, order)
    if k < n:  # a tie across the border: which of the equals come first is decided by row, over all of them
        tied = ((best.values[:, k - 1] == best.values[:, k]) & (best.values[:, k] > -torch.inf)).nonzero()[:, 0]
        if len(tied):
            full = key[tied].sort(dim=1, descending=True, stable=True)
            row[tied], ordered[tied] = full.indices[:, :k], full.values[:, :k]
    return row.masked_fill(ordered == -torch.inf, -1), ordered
