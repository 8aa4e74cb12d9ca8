"""Top gallery rows of every query: candidates from fast arithmetic, ordered by exact scores, proven complete by an error bound.

Products in float32 (float16 on a GPU) select more candidates than needed; exact scores (`integer_scores`) order the candidates.
A query whose candidates cannot be proven complete, because too many neighbours are nearly equal, is scored exactly against the
whole gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.retrieval import integer_scores
from likewise.core.retrieval.hit_counts import HitCounter
from likewise.core.retrieval.integer_scores import Exclusions, PreparedVectors, row_slices
from likewise.core.similarity import full_precision_matmul

GROUP_SIZE = 32
"""Scores per group on a GPU: `largest` first selects groups by their maximum, then single scores in the selected groups."""


def top_rows(
    queries: PreparedVectors,
    gallery: PreparedVectors,
    exclusions: Exclusions,
    depth: Int[Tensor, "Q"],
    budget: int,
    same: bool,
    progress: Callable[[float], None],
    counter: HitCounter | None = None,
) -> Iterator[tuple[Int[Tensor, "C"], Int[Tensor, "C K"], Float[Tensor, "C K"]]]:
    """Yield chunks of (query numbers, their gallery rows in exact order, the exact keys of these rows).

    The rows of a chunk go down to the largest depth among its queries.

    Args:
        depth: number of gallery rows that each query needs.
        budget: bytes of working memory.
        same: whether queries and gallery are the same set.
        progress: called with the share of the work that is done.
        counter: counts the gallery rows before every hit in the same pass.
    """
    n, on_gpu = len(gallery), gallery.device.type == "cuda"
    keep = min(n, with_slack(int(depth.max()), on_gpu))
    proposal, before = None, 0.0
    if same and not on_gpu and keep < n // 8 and n * keep * 8 <= budget * 3 // 4:
        before = 0.9  # approximate share of the time that the proposals take
        proposal = _propose_symmetric(
            gallery, exclusions, keep, budget // 4, lambda share: progress(before * share), counter
        )
    order = depth.argsort(stable=True)  # queries of similar depth share a chunk, so that no chunk is deeper than needed
    unproven, done = [], 0
    for chunk in row_slices(len(order), min(2**14, budget // (keep * 256))):
        ids = order[chunk]
        k = int(depth[ids[-1]])
        keep_here = min(n, with_slack(k, on_gpu))
        if keep_here >= max(n // 8, 2) and n > 64:  # at this depth, exact scores of the whole gallery are cheaper
            unproven.append(ids)
            continue
        if proposal is None:
            candidate, floor = _propose(queries, gallery, exclusions, ids, keep_here, budget // 2, counter)
        else:
            candidate, floor = proposal[0][ids].long(), proposal[1][ids]
        row, key, proven = _rescore(queries, gallery, ids, candidate, floor, k, budget // 2)
        unproven.append(ids[~proven])
        yield ids[proven], row[proven], key[proven]
        done += len(ids) - len(unproven[-1])
        progress(before + (1 - before) * done / len(order))
    left = torch.cat(unproven)
    for ids in left.split(4096) if len(left) else ():
        for chunk_of_rows in integer_scores.exhaustive(
            queries, gallery, exclusions, ids, int(depth[ids].max()), budget
        ):
            yield chunk_of_rows
            done += len(chunk_of_rows[0])
            progress(before + (1 - before) * done / len(order))


def with_slack(k: int, on_gpu: bool) -> int:
    """Return the number of candidates to keep so that the first k rows can usually be proven."""
    return k + 16 + k // 4 if on_gpu else k + 8 + k // 8


def _approximate(q: Tensor, gallery: PreparedVectors, rows: slice) -> Tensor:
    """Return approximate scores of queries against gallery rows, divided by `max_integer` squared.

    `q` holds the `scaled` vectors of the queries. Products are float32; on a GPU float16, summed in float32.
    """
    with full_precision_matmul(q):
        dots = q @ gallery.scaled(rows).T
    return (
        dots
        if gallery.norm is None
        else dots.float().mul_(2).sub_((gallery.norm[rows] / gallery.max_integer**2).float())
    )


def error_of(gallery: PreparedVectors) -> float:
    """Return an upper bound on the error of a score of `_approximate`, valid for every order of summation.

    CPU: two vectors rounded to float32 rather than to integers, plus products and sums. GPU: two vectors rounded to 11 bits
    (bounded by Cauchy-Schwarz), sums that may truncate where float32 would round, and the result rounded to 11 bits.
    """
    dim = gallery.z.shape[1]
    error = (dim + dim**0.5 + 4) * 2.0**-24
    if gallery.device.type == "cuda":
        error = 2.0**-10 + dim**0.5 * 2.0**-24 + (dim + 64) * 2.0**-22 + 2.0**-11
    return error if gallery.norm is None else 4 * error


def _propose(
    queries: PreparedVectors,
    gallery: PreparedVectors,
    exclusions: Exclusions,
    ids: Tensor,
    keep: int,
    budget: int,
    counter: HitCounter | None = None,
) -> tuple[Int[Tensor, "A K"], Float[Tensor, "A"]]:
    """Return the `keep` gallery rows of highest approximate score, and the lowest of these scores.

    No gallery row outside the returned ones has a higher approximate score.
    """
    n, best = len(gallery), Best(len(ids), keep, gallery.device)
    pairs, most = budget // 4, n if gallery.scaled_copy is not None else budget // (16 * gallery.z.shape[1])
    height = min(len(ids), max(pairs // n, 1024))  # the whole gallery at once if the blocks stay large enough
    for mine in row_slices(len(ids), height):
        q = queries.scaled(ids[mine])
        for rows in row_slices(n, max(min(pairs // height, most), 4 * keep)):
            block = _approximate(q, gallery, rows)
            exclusions.mask(block, ids[mine], rows.start)
            best.take(mine, rows.start, block)
            if counter is not None:
                counter.take(ids[mine], rows.start, block)
    if counter is not None:
        counter.seen[ids] = True
    return best.row.masked_fill(best.score == -torch.inf, -1).long(), best.score[:, -1]


def _propose_symmetric(
    both: PreparedVectors,
    exclusions: Exclusions,
    keep: int,
    budget: int,
    progress: Callable[[float], None],
    counter: HitCounter | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `_propose` returns for a set against itself; every block of products is used for its rows and its columns."""
    n = len(both)
    best = Best(n, keep, both.device)
    everyone = torch.arange(n, device=both.device)
    size = min(4096, max(64, int((budget / 8) ** 0.5)))
    blocks = row_slices(n, size)
    length = None if both.norm is None else (both.norm / both.max_integer**2).float()
    done, pairs = 0, len(blocks) * (len(blocks) + 1) // 2
    for far in range(len(blocks)):  # the diagonal first: its scores are the thresholds for later blocks
        for a, b in zip(blocks, blocks[far:], strict=False):
            block = _approximate(both.scaled(a), both, b)
            exclusions.mask(block, everyone[a], b.start)
            best.take(a, b.start, block)
            if counter is not None:
                counter.take(everyone[a], b.start, block)
            if a != b:
                # Euclidean: the block holds 2 ab - |b|^2; its transpose needs 2 ab - |a|^2
                other = block.T if length is None else block.T + (length[b][:, None] - length[a][None, :])
                best.take(b, a.start, other)
                if counter is not None:
                    counter.take(everyone[b], a.start, other)
            done += 1
            progress(done / pairs)
    if counter is not None:
        counter.seen.fill_(True)
    return best.row.masked_fill(best.score == -torch.inf, -1), best.score[:, -1]


class Best:
    """Running top `keep` scores of every query, with the gallery rows of these scores."""

    def __init__(self, n: int, keep: int, device: torch.device):
        self.keep = keep
        self.score = torch.full((n, keep), -torch.inf, device=device)
        self.row = torch.full((n, keep), -1, dtype=torch.int32, device=device)

    def take(self, mine: slice, first: int, block: Float[Tensor, "A B"]) -> None:
        """Merge a block of scores: the queries `mine` against gallery rows from `first` on."""
        bar = self.score[mine, -1]
        if block.is_cuda or (bar == -torch.inf).any():
            return self._take_all(mine, first, block)
        ahead = block > bar[:, None]  # usually few
        if ahead.count_nonzero() > ahead.numel() // 8:  # a list of them would need more memory than the block
            return self._take_all(mine, first, block)
        if block.is_contiguous():
            place, column = ahead.nonzero(as_tuple=True)
        else:  # a transposed block is read in its memory order
            column, place = ahead.T.nonzero(as_tuple=True)
            place, order = place.sort(stable=True)
            column = column[order]
        count = torch.bincount(place, minlength=len(bar))
        most = int(count.max())
        if most > 4 * self.keep:
            return self._take_all(mine, first, block)
        if most:
            seat = torch.arange(len(place)) - (count.cumsum(0) - count)[place]
            score = torch.full((len(bar), most), -torch.inf)
            row = torch.full((len(bar), most), -1, dtype=torch.int32)
            score[place, seat], row[place, seat] = block[place, column], (column + first).int()
            self._merge(mine, count.nonzero()[:, 0], score, row)

    def _take_all(self, mine: slice, first: int, block: Tensor) -> None:
        score, column = largest(block.contiguous(), min(self.keep, block.shape[1]))
        self._merge(mine, slice(None), score.float(), (column + first).int())

    def _merge(self, mine: slice, chosen, score: Tensor, row: Tensor) -> None:
        scores = torch.cat([self.score[mine][chosen], score[chosen]], 1)
        rows = torch.cat([self.row[mine][chosen], row[chosen]], 1)
        kept, at = scores.topk(self.keep, dim=1)
        self.score[mine][chosen], self.row[mine][chosen] = kept, rows.gather(1, at)


def largest(block: Float[Tensor, "A B"], keep: int) -> tuple[Float[Tensor, "A K"], Int[Tensor, "A K"]]:
    """Return values and columns of the `keep` largest scores of every row.

    On a GPU, groups of columns are selected by their maximum first: the `keep` largest scores lie in the `keep` best groups.
    """
    tall, wide = block.shape
    if not block.is_cuda or wide < 4 * keep * GROUP_SIZE:
        found = block.topk(keep, dim=1)
        return found.values, found.indices
    groups = wide // GROUP_SIZE  # group j: columns j, j + groups, j + 2 groups, ... so that memory reads are contiguous
    whole = groups * GROUP_SIZE
    group = block[:, :whole].unflatten(1, (GROUP_SIZE, groups)).amax(1).topk(keep, dim=1, sorted=False).indices
    column = (group[:, :, None] + torch.arange(0, whole, groups, device=block.device)).flatten(1)
    if whole < wide:  # columns after the last full group
        column = torch.cat([column, torch.arange(whole, wide, device=block.device).expand(tall, -1)], 1)
    score, at = block.gather(1, column).topk(keep, dim=1)
    return score, column.gather(1, at)


def _rescore(
    queries: PreparedVectors,
    gallery: PreparedVectors,
    ids: Tensor,
    candidate: Tensor,
    floor: Tensor,
    k: int,
    budget: int,
):
    """Return the first k candidates in exact order, their exact keys, and whether each query's list is proven complete."""
    candidate = candidate.sort(dim=1).values  # ascending rows, so that a stable sort by key leaves ties in row order
    key = integer_scores.pair_keys(queries, gallery, ids, candidate.clamp_min(0), budget).masked_fill_(
        candidate < 0, -torch.inf
    )
    key, order = key.sort(dim=1, descending=True, stable=True)
    row, key = candidate.gather(1, order)[:, :k], key[:, :k]
    everything = candidate.shape[1] >= len(gallery)
    proven = key[:, -1] > (floor.double() + error_of(gallery)) * gallery.max_integer**2
    return row, key, proven | (floor == -torch.inf) | everything
