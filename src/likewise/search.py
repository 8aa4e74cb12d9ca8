"""Exact nearest neighbours in bounded memory, the same rows on every device.

Embeddings are rounded to integers of 26 bits (25 for Euclidean ranking). A dot product of two such vectors fits the 53 bits
of a float64 whatever the order of summation, so every machine gets the same number, equal vectors tie exactly, and ties go
to the lower row. Most of the work is still done in float32: it proposes k + slack candidates, these are scored exactly, and a
query whose proposal cannot be proven complete (many near-equal neighbours) is scored exactly against the whole gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.types import LikewiseError, Retrieval

BUDGET = 512 * 2**20
"""Bytes of working memory beyond the embeddings themselves."""

SIMILARITIES = ("cosine", "euclidean")


@dataclass(frozen=True, eq=False)
class _Set:
    """One side of a search, ready to be compared."""

    whole: Int[Tensor, "N D"]  # int32
    real: Float[Tensor, "N D"]  # whole / scale, in float32
    norm: Float[Tensor, "N"] | None  # squared length of `whole` in float64, exact; None for cosine
    group: Int[Tensor, "N"] | None
    scale: float


def rank(
    z: Float[Tensor, "Q D"],
    y: Int[Tensor, "Q"],
    gallery_z: Float[Tensor, "G D"] | None = None,
    gallery_y: Int[Tensor, "G"] | None = None,
    *,
    k: int = 10,
    own: Int[Tensor, "Q"] | None = None,
    group: Int[Tensor, "Q"] | None = None,
    gallery_group: Int[Tensor, "G"] | None = None,
    similarity: str = "cosine",
    budget: int = BUDGET,
    progress: Callable[[int], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, down to rank k or to as many answers as there are to find, whichever is deeper.

    Args:
        z: queries. Without a gallery they are ranked among themselves, each without itself.
        k: how many answers to keep for show (`Retrieval.row`).
        own: where each query itself stands in the gallery (-1: nowhere); that row is never an answer.
        group: rows of the same group (>= 0) are no answers either, and nobody misses them.
        similarity: "cosine", or "euclidean" for raw embeddings.
        budget: bytes of working memory; smaller means smaller chunks, never other results.
        progress: called with the number of queries finished.
    """
    leave_one_out = gallery_z is None
    if leave_one_out:
        gallery_z, gallery_y, gallery_group = z, y, group
        own = torch.arange(len(z), device=z.device)
    own = torch.full((len(z),), -1, device=z.device) if own is None else own
    if len(z) != len(y) or len(gallery_z) != len(gallery_y):
        raise LikewiseError(
            f"search: one label per embedding is wanted, got {len(z)} queries with {len(y)} labels "
            f"and a gallery of {len(gallery_z)} with {len(gallery_y)} labels"
        )
    if len(z) == 0 or len(gallery_z) == 0:
        raise LikewiseError(f"search: nothing to rank, got {len(z)} queries and a gallery of {len(gallery_z)} rows")
    queries, gallery = _prepare(z, gallery_z, group, gallery_group, leave_one_out, similarity)
    relevant = _count_relevant(y, gallery_y, own, group, gallery_group)
    depth = relevant.clamp_min(k).clamp_max(len(gallery_z))
    shown = min(k, len(gallery_z))

    out_row = torch.full((len(z), shown), -1, dtype=torch.int64, device=z.device)
    out_sim = torch.full((len(z), shown), torch.nan, dtype=torch.float64, device=z.device)
    hits: list[tuple[Tensor, Tensor]] = []
    for ids, row, key in _top(queries, gallery, own, depth, budget, leave_one_out):
        out_row[ids], out_sim[ids] = row[:, :shown], _readable(key[:, :shown], queries, ids)
        match = (gallery_y[row.clamp_min(0)] == y[ids][:, None]) & (row >= 0)
        place, rank_of = match.nonzero(as_tuple=True)
        deep_enough = rank_of < depth[ids][place]
        hits.append((ids[place][deep_enough], rank_of[deep_enough] + 1))
        if progress:
            progress(len(ids))
    who, hit_rank = torch.cat([h[0] for h in hits]), torch.cat([h[1] for h in hits])
    order = who.sort(stable=True).indices  # chunks come in any order; within a query ranks already ascend
    found = torch.bincount(who, minlength=len(z))
    start = torch.cat([found.new_zeros(1), found.cumsum(0)])
    match = (gallery_y[out_row.clamp_min(0)] == y[:, None]) & (out_row >= 0)
    query = torch.arange(len(z), device=z.device)
    return Retrieval(query, out_row, match, out_sim, relevant, depth, hit_rank[order], start)


def nearest(
    z: Float[Tensor, "Q D"],
    gallery_z: Float[Tensor, "G D"],
    k: int = 10,
    *,
    own: Int[Tensor, "Q"] | None = None,
    similarity: str = "cosine",
    budget: int = BUDGET,
) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
    """The k nearest gallery rows of every query and their similarities (Euclidean: minus the distance); no labels needed."""
    label = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    nobody = torch.ones(len(gallery_z), dtype=torch.int64, device=z.device)
    found = rank(z, label, gallery_z, nobody, k=k, own=own, similarity=similarity, budget=budget)
    return found.row, found.sim


def _prepare(z, gallery_z, group, gallery_group, leave_one_out, similarity) -> tuple[_Set, _Set]:
    if similarity not in SIMILARITIES:
        raise LikewiseError(f"search: similarity must be one of {', '.join(SIMILARITIES)}, got '{similarity}'")
    if z.dim() != 2 or gallery_z.dim() != 2 or z.shape[1] != gallery_z.shape[1]:
        raise LikewiseError(
            "search: queries and gallery must be tables with the same number of columns, "
            f"got {tuple(z.shape)} and {tuple(gallery_z.shape)}"
        )
    for name, t in (("query", z), ("gallery", gallery_z)):
        bad = ~torch.isfinite(t).all(1)
        if bad.any():
            raise LikewiseError(
                f"search: embeddings must be finite, got NaN or infinity in {int(bad.sum())} {name} rows "
                f"(first: row {int(bad.nonzero()[0])}); look for a diverged training or a broken image"
            )
    if similarity == "cosine":
        sets = [_quantise(z, None, group)]
        return sets[0], sets[0] if leave_one_out else _quantise(gallery_z, None, gallery_group)
    largest = max(float(t.double().square().sum(1).max()) for t in (z, gallery_z)) ** 0.5
    scale = 2.0 ** (25 - torch.tensor(max(largest, 1e-30), dtype=torch.float64).log2().ceil().item())
    queries = _quantise(z, scale, group)
    return queries, queries if leave_one_out else _quantise(gallery_z, scale, gallery_group)


def _quantise(z: Tensor, scale: float | None, group: Tensor | None) -> _Set:
    whole = torch.empty(z.shape, dtype=torch.int32, device=z.device)
    norm = torch.empty(len(z), dtype=torch.float64, device=z.device) if scale else None
    for i in range(0, len(z), 4096):
        part = z[i : i + 4096].double()
        if scale is None:
            length = _fixed_order_sum(part * part).sqrt()
            part = part / length.clamp_min(torch.finfo(torch.float64).tiny)[:, None] * 2.0**26
        else:
            part = part * scale
        part = part.round()
        whole[i : i + 4096] = part.int()
        if norm is not None:
            norm[i : i + 4096] = (part * part).sum(1)  # exact: integers below 2^53
    scale = scale or 2.0**26
    return _Set(whole, whole.float().mul_(1 / scale), norm, group, scale)


def _fixed_order_sum(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    """Sum of rows by halving: only elementwise additions, so the same bits on every device."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        rest = x[:, 2 * half :]
        x = torch.cat([x[:, :half] + x[:, half : 2 * half], rest], 1) if rest.shape[1] else x[:, :half] + x[:, half:]
    return x[:, 0]


def _readable(key: Float[Tensor, "C K"], queries: _Set, ids: Int[Tensor, "C"]) -> Float[Tensor, "C K"]:
    """Exact keys as the similarity a person reads: the cosine, or minus the distance."""
    if queries.norm is None:
        return (key / queries.scale**2).masked_fill(key == -torch.inf, torch.nan)
    squared = (queries.norm[ids][:, None] - key).clamp_min(0)
    return (-squared.sqrt() / queries.scale).masked_fill(key == -torch.inf, torch.nan)


def _count_relevant(y, gallery_y, own, group, gallery_group) -> Int[Tensor, "Q"]:
    """Gallery rows of the query's class, less the query itself and the rows of its group."""
    labels = torch.cat([y, gallery_y]).unique()
    yq, yg = torch.searchsorted(labels, y), torch.searchsorted(labels, gallery_y)
    count = torch.bincount(yg, minlength=len(labels))[yq]
    own_counts = (own >= 0) & (gallery_y[own.clamp_min(0)] == y)
    if group is None or gallery_group is None:
        return count - own_counts.long()
    groups = torch.cat([group, gallery_group]).unique()
    pair_q = yq * len(groups) + torch.searchsorted(groups, group)
    pair_g = (yg * len(groups) + torch.searchsorted(groups, gallery_group))[gallery_group >= 0]
    pairs, size = pair_g.unique(return_counts=True)
    at = torch.searchsorted(pairs, pair_q).clamp_max(max(len(pairs) - 1, 0))
    in_group = torch.where((pairs[at] == pair_q) & (group >= 0), size[at], 0) if len(pairs) else torch.zeros_like(count)
    own_apart = own_counts & ((group < 0) | (gallery_group[own.clamp_min(0)] != group))
    return count - in_group - own_apart.long()


def _top(
    queries: _Set, gallery: _Set, own: Tensor, depth: Tensor, budget: int, same: bool
) -> Iterator[tuple[Int[Tensor, "C"], Int[Tensor, "C K"], Float[Tensor, "C K"]]]:
    """Chunks of queries, each with its gallery rows in exact order and their keys, as deep as the chunk's deepest query."""
    n, dim = gallery.whole.shape
    keep = min(n, _with_slack(int(depth.max())))
    proposal = None
    if same and keep < n // 8 and len(own) * keep * 12 <= budget // 2:
        proposal = _propose_symmetric(gallery, keep, budget // 2)
    order = depth.argsort(stable=True)  # queries of like depth together: no chunk goes deeper than it must
    at = 0
    while at < len(order):
        size = max(1, budget // (n * 12 if proposal is None else keep * dim * 16))
        ids = order[at : at + size]
        k = int(depth[ids].max())
        keep_here = min(n, _with_slack(k))
        if keep_here >= max(n // 8, 2) and n > 64:
            ids = ids[: max(1, budget // (n * 24))]
            k = int(depth[ids].max())
            row, key = _exhaustive(queries, gallery, own, ids, k)
        else:
            ids = ids[: max(1, budget // (keep_here * dim * 16))]
            if proposal is None:
                candidate, floor = _propose(queries, gallery, own, ids, keep_here)
            else:
                candidate, floor = proposal[0][ids], proposal[1][ids]
            row, key, proven = _rescore(queries, gallery, ids, candidate, floor, k)
            doubtful = (~proven).nonzero()[:, 0]
            for part in doubtful.split(max(1, budget // (n * 24))):
                row[part], key[part] = _exhaustive(queries, gallery, own, ids[part], k)
        yield ids, row, key
        at += len(ids)


def _with_slack(k: int) -> int:
    return k + max(16, k // 4)


def _approximate(q: Tensor, gallery: _Set, rows: slice = slice(None)) -> Tensor:
    """Scores in float32, in the units of `real`."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.autocast(q.device.type, enabled=False):
            dots = q @ gallery.real[rows].T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    if gallery.norm is None:
        return dots
    return dots.mul_(2).sub_((gallery.norm[rows] / gallery.scale**2).float())


def _forbid(score: Tensor, queries: _Set, gallery: _Set, ids: Tensor, own: Tensor, rows: slice = slice(None)) -> None:
    """Take the query itself and its group out of the running, in place."""
    first = rows.start or 0
    column = own[ids] - first
    here = (own[ids] >= 0) & (column >= 0) & (column < score.shape[1])
    score[here.nonzero()[:, 0], column[here]] = -torch.inf
    if queries.group is not None and gallery.group is not None:
        group = queries.group[ids][:, None]
        score.masked_fill_((group == gallery.group[rows][None, :]) & (group >= 0), -torch.inf)


def _propose(queries: _Set, gallery: _Set, own: Tensor, ids: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep` best gallery rows by float32, and the worst score among them (nothing left out scored more)."""
    score = _approximate(queries.real[ids], gallery)
    _forbid(score, queries, gallery, ids, own)
    best = score.topk(keep, dim=1)
    return best.indices.masked_fill(best.values == -torch.inf, -1), best.values[:, -1]


def _propose_symmetric(both: _Set, keep: int, budget: int) -> tuple[Tensor, Tensor]:
    """`_propose` for a set against itself: every block of products serves its rows and its columns."""
    n, device = len(both.whole), both.whole.device
    score = torch.full((n, keep), -torch.inf, device=device)
    row = torch.full((n, keep), -1, dtype=torch.int64, device=device)
    everyone = torch.arange(n, device=device)
    size = min(4096, max(64, int((budget / 24) ** 0.5)))

    def merge(mine: slice, theirs: slice, block: Tensor) -> None:
        best = block.topk(min(keep, block.shape[1]), dim=1)
        scores = torch.cat([score[mine], best.values], 1)
        rows = torch.cat([row[mine], best.indices + theirs.start], 1)
        score[mine], at = scores.topk(keep, dim=1)
        row[mine] = rows.gather(1, at)

    blocks = [slice(i, min(i + size, n)) for i in range(0, n, size)]
    for i, a in enumerate(blocks):
        for b in blocks[i:]:
            block = _approximate(both.real[a], both, b)
            _forbid(block, both, both, everyone[a], everyone, b)
            if a != b:
                other = block.T.contiguous()
                if both.norm is not None:  # the block holds 2 ab - |b|^2; the other side wants 2 ab - |a|^2
                    length = (both.norm / both.scale**2).float()
                    other += length[b][:, None] - length[a][None, :]
                merge(b, a, other)
            merge(a, b, block)
    return row.masked_fill(score == -torch.inf, -1), score[:, -1]


def _rescore(queries: _Set, gallery: _Set, ids: Tensor, candidate: Tensor, floor: Tensor, k: int):
    """Exact keys of the candidates, the first k in order, and whether nothing outside them can belong there."""
    candidate = candidate.sort(dim=1).values  # ascending rows, so that a stable sort by key leaves ties in row order
    g = gallery.whole[candidate.clamp_min(0)].double()
    key = torch.bmm(g, queries.whole[ids].double()[:, :, None])[:, :, 0]
    if gallery.norm is not None:
        key = 2 * key - gallery.norm[candidate.clamp_min(0)]
    key.masked_fill_(candidate < 0, -torch.inf)
    key, order = key.sort(dim=1, descending=True, stable=True)
    row, key = candidate.gather(1, order)[:, :k], key[:, :k]
    everything = candidate.shape[1] >= len(gallery.whole)
    proven = (key[:, -1] > (floor.double() + _float32_error(queries, gallery)) * gallery.scale**2) | (floor == -torch.inf)
    return row, key, proven | everything


def _float32_error(queries: _Set, gallery: _Set) -> float:
    """No float32 score is further from the truth than this, whatever the order of summation."""
    dim = gallery.whole.shape[1]
    if gallery.norm is None:
        return (dim + 4) * 2.0**-24
    longest = max(float(queries.norm.max()), float(gallery.norm.max())) / gallery.scale**2
    return (4 * dim + 16) * 2.0**-24 * longest


def _exhaustive(queries: _Set, gallery: _Set, own: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
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
