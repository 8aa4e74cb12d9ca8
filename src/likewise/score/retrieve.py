"""Rank the gallery of every query as the protocol defines it, in one process or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import Protocol
from likewise.core.distributed.process_group import rank_in_shares, world
from likewise.core.retrieval.integer_scores import euclidean_scale
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES, rank
from likewise.core.retrieval.relevant_rows import RowRelevance
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval
from likewise.score.answers import MAX_STORED_RESULTS, hidden_groups
from likewise.score.metrics import RankingDepth

if TYPE_CHECKING:
    from likewise.score.levels import LevelPlan


def retrieve(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    wanted: RankingDepth = RankingDepth(1, False),
    *,
    similarity: str = "cosine",
    device: torch.device | None = None,
    budget: int = WORKING_MEMORY_BYTES,
    exclude: Int[np.ndarray, "M 2"] | None = None,
    levels: LevelPlan | None = None,
    relevance: RowRelevance | None = None,
    part: slice | None = None,
    other_cameras: bool = False,
    stored: int = MAX_STORED_RESULTS,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, as the protocol defines them, without rows that the query's `hidden_groups` exclude.

    If several processes work together, each ranks a share of the queries.

    Args:
        wanted: number of results that the metrics need.
        budget: memory for the ranking, in bytes.
        exclude: pairs of rows of the data that are not results of each other.
        levels: labels of a class tree; hits are then of the level `levels.ranked`, each with its gallery row.
        relevance: what is relevant in place of equal labels; both of its sides are the ids of all embeddings.
        part: rank only this part of the queries.
        other_cameras: exclude all rows of the query's camera, not only those of its class.
        stored: number of results of each query in the ranking that is returned.
    """
    is_query, in_gallery = (torch.as_tensor(side) for side in protocol.query_gallery(items, e.row.numpy()))
    if not is_query.any() or not in_gallery.any():
        raise LikewiseError(
            f"{type(protocol).__name__}: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
            f"got {int(is_query.sum())} and {int(in_gallery.sum())}; check the columns `query`, `gallery` and `split`"
        )
    y, shown = (e.y, 1) if levels is None else (levels.ranked_y, levels.shown)
    group = hidden_groups(items, other_cameras)
    group = None if group is None else group[e.row]
    how = {
        "k": max(stored, shown), "depth": wanted.k, "all_hits": wanted.all_hits, "similarity": similarity,
        "device": device, "budget": budget, "progress": progress,
    }  # fmt: skip
    pairs = None if exclude is None else _positions(exclude, e, items)
    if is_query.all() and in_gallery.all() and world()[1] == 1 and part is None:
        how["relevance"] = relevance
        labels = None if levels is None else (levels.label, levels.label)
        return rank(e.z, y, group=group, exclude=pairs, levels=labels, **how)
    q, g = is_query.nonzero()[:, 0], in_gallery.nonzero()[:, 0]
    z, gallery_z = (e.z if side.all() else e.z[side] for side in (is_query, in_gallery))
    # The same scale in all processes and parts.
    how["scale"] = euclidean_scale(z, gallery_z) if similarity == "euclidean" else None
    q, z = (q, z) if part is None else (q[part], z[part])
    in_q, in_g = (torch.full((len(e.row),), -1).index_put_((at,), torch.arange(len(at))) for at in (q, g))
    if pairs is not None:
        pairs = torch.cat([pairs, pairs.flip(1)])
        pairs = torch.stack([in_q[pairs[:, 0]], in_g[pairs[:, 1]]], 1)
        pairs = pairs[(pairs >= 0).all(1)]

    def rank_some(mine: slice) -> Retrieval:
        own = None if pairs is None else pairs[(pairs[:, 0] >= mine.start) & (pairs[:, 0] < mine.stop)]
        return rank(
            z[mine], y[q[mine]], gallery_z, y[g], own=in_g[q[mine]],
            levels=None if levels is None else (levels.label[:, q[mine]], levels.label[:, g]),
            group=None if group is None else group[q[mine]], gallery_group=None if group is None else group[g],
            exclude=None if own is None else own - torch.tensor([mine.start, 0]),
            relevance=relevance and replace(relevance, query=relevance.query[q[mine]], gallery=relevance.gallery[g]), **how,
        )  # fmt: skip

    found = rank_in_shares(len(q), rank_some)
    g = g.to(found.row.device)
    row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
    hit_row = None if found.hit_row is None else g[found.hit_row]
    return replace(found, query=q.to(g.device), row=row, hit_row=hit_row)


def _positions(pairs: Int[np.ndarray, "M 2"], e: Embedded, items: Items) -> Int[torch.Tensor, "m 2"]:
    """Return pairs of rows of the data as positions among the embeddings, without pairs that have a row outside of them."""
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(items)):
        raise LikewiseError(
            f"evaluate: excluded pairs must name rows 0 to {len(items) - 1} of '{items.name}', got {pairs.min()} to {pairs.max()}"
        )
    place = torch.full((len(items),), -1)
    place[e.row] = torch.arange(len(e.row))
    found = place[torch.as_tensor(pairs)]
    return found[(found >= 0).all(1)]
