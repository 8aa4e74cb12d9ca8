"""Exact nearest neighbours in bounded memory, the same rows on every device.

Ranking is by (similarity, row): equal similarities go to the lower row, on every device and for every chunk size.
`exact` says how.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise import exact
from likewise.types import LikewiseError, Retrieval

BUDGET = 512 * 2**20
"""Bytes of working memory beyond the embeddings themselves."""

SIMILARITIES = ("cosine", "euclidean")


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
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, down to rank k or to as many answers as there are to find, whichever is deeper.

    Args:
        z: queries. Without a gallery they are ranked among themselves, each without itself.
        k: how many answers to keep for show (`Retrieval.row`).
        own: where each query itself stands in the gallery (-1: nowhere); that row is never an answer.
        group: rows of the same group (>= 0) are no answers either, and nobody misses them.
        similarity: "cosine", or "euclidean" for raw embeddings.
        budget: bytes of working memory; smaller means smaller chunks, never other results.
        progress: called with the share of the work that is done.
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
    for ids, row, key in exact.top(
        queries, gallery, own, depth, budget, leave_one_out, progress or (lambda share: None)
    ):
        out_row[ids], out_sim[ids] = row[:, :shown], exact.readable(key[:, :shown], queries, ids)
        match = (gallery_y[row.clamp_min(0)] == y[ids][:, None]) & (row >= 0)
        place, rank_of = match.nonzero(as_tuple=True)
        deep_enough = rank_of < depth[ids][place]
        hits.append((ids[place][deep_enough], rank_of[deep_enough] + 1))
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


def _prepare(z, gallery_z, group, gallery_group, leave_one_out, similarity) -> tuple[exact.Side, exact.Side]:
    if similarity not in SIMILARITIES:
        raise LikewiseError(f"search: similarity must be one of {', '.join(SIMILARITIES)}, got '{similarity}'")
    if z.dim() != 2 or gallery_z.dim() != 2 or z.shape[1] != gallery_z.shape[1]:
        raise LikewiseError(
            "search: queries and gallery must be tables with the same number of columns, "
            f"got {tuple(z.shape)} and {tuple(gallery_z.shape)}"
        )
    scale = None if similarity == "cosine" else exact.euclidean_scale(z, gallery_z)
    queries = exact.prepare(z, group, scale, "query")
    return queries, queries if leave_one_out else exact.prepare(gallery_z, gallery_group, scale, "gallery")


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
