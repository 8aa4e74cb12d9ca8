"""Metrics per query by relevance: queries are ranked in parts, so that the hits of all of them are never in memory at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from likewise.core.contracts import Metric, Protocol
from likewise.core.retrieval.integer_scores import euclidean_scale, pair_keys, prepare, row_slices
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval
from likewise.score.metrics import graded_depth, is_graded, last_rank, needs_graded_hits, reach
from likewise.score.metrics.ranking import query_of_hit
from likewise.score.relevance import RelevanceOfRows
from likewise.score.retrieve import retrieve

HIT_BYTES = 128
"""Bytes of working memory for each hit of the queries that are ranked together."""

MIN_PART_QUERIES = 64
"""Smallest number of queries that are ranked together."""


def measure_by_relevance(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    chosen: Mapping[str, Metric],
    relevance: RelevanceOfRows,
    *,
    device: torch.device,
    budget: int,
    stored: int,
    progress,
    **how,
) -> tuple[dict[str, Float[Tensor, "Q"]], Retrieval]:
    """Return metrics per query and the first `stored` results of every query, without its hits.

    Args:
        how: further arguments of `retrieve`.
    """
    is_query, in_gallery = protocol.query_gallery(items, e.row.numpy())
    depth, queries = graded_depth(chosen), int(is_query.sum())
    given = relevance.for_ranking(device, best=depth, hit_values=needs_graded_hits(chosen))
    how |= {
        "wanted": reach(chosen),
        "relevance": given,
        "device": device,
        "budget": budget,
        "stored": max(stored, depth),
    }
    values, parts, at = [], [], 0
    size = max(MIN_PART_QUERIES, budget // (HIT_BYTES * max(1, int(in_gallery.sum()))))
    while at < queries or not parts:  # without queries, `retrieve` raises
        part = slice(at, min(at + size, queries))
        found = retrieve(e, items, protocol, part=part, **how)
        values.append(_measure(found, chosen, relevance.threshold))
        parts.append(_without_hits(above(found, relevance.threshold), stored))
        at = part.stop
        size = max(MIN_PART_QUERIES, int(budget / (HIT_BYTES * max(1.0, float(found.relevant.double().mean())))))
        progress(at / max(1, queries))
    return {name: torch.cat([one[name] for one in values]) for name in chosen}, _joined(parts)


def _measure(found: Retrieval, chosen: Mapping[str, Metric], threshold: float) -> dict[str, Float[Tensor, "Q"]]:
    """Return metrics of some queries; NaN for a query without relevant rows, also in metrics that count all values above 0."""
    binary = above(found, threshold)
    lonely = binary.relevant == 0
    return {
        name: measure(found).masked_fill(lonely, torch.nan) if is_graded(name) and last_rank(name) is None else measure(binary)
        for name, measure in chosen.items()
    }  # fmt: skip


def above(found: Retrieval, threshold: float) -> Retrieval:
    """Return the ranking with only the rows of this relevance or more as relevant; unchanged if its hits have no values."""
    if found.hit_value is None or found.value is None:
        return found
    kept = found.hit_value >= threshold
    count = torch.bincount(query_of_hit(found)[kept], minlength=len(found.relevant))
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return replace(
        found, match=found.value >= threshold, relevant=count, hit_rank=found.hit_rank[kept], start=start, hit_row=None,
        hit_value=None,
    )  # fmt: skip


def _without_hits(found: Retrieval, stored: int) -> Retrieval:
    assert found.value is not None
    first = {name: getattr(found, name)[:, :stored] for name in ("row", "match", "sim", "value")}
    nothing = {"hit_rank": found.hit_rank[:0], "start": torch.zeros_like(found.start), "best": None, "hit_row": None}
    return replace(found, depth=torch.zeros_like(found.depth), hit_value=None, **first, **nothing)


def _joined(parts: list[Retrieval]) -> Retrieval:
    names = ("query", "row", "match", "sim", "relevant", "depth", "value")
    whole = {name: torch.cat([getattr(one, name) for one in parts]) for name in names}
    return replace(parts[0], start=torch.zeros(len(whole["query"]) + 1, dtype=torch.int64), **whole)


def triplet_agreement(
    e: Embedded, is_query: Bool[Tensor, "N"], relevance: RelevanceOfRows | None, similarity: str, budget: int
) -> tuple[Float[Tensor, "Q"], int]:
    """Return the share of the judged triplets of every query that hold, NaN without triplets; and the number of triplets.

    Similarities are compared exactly; equal ones count as wrong.
    """
    judged = None if relevance is None else relevance.source.judged()
    if relevance is None or judged is None:
        name = "no relevance" if relevance is None else type(relevance.source).__name__
        raise LikewiseError(
            f"evaluate: triplet-agreement needs judged triplets of the evaluated rows, got {name}; give --relevance "
            "\"JudgedTriplets(...)\", or leave the metric out"
        )  # fmt: skip
    place = torch.full((relevance.source.ids,), -1)
    place[relevance.ids] = torch.arange(len(relevance.ids))  # id -> place among the scored rows
    found = place[torch.as_tensor(judged)]
    found = found[(found >= 0).all(1)]
    found = found[is_query[found[:, 0]]]
    a, sides = found[:, 0], found[:, 1:]
    both = prepare(e.z, torch.device("cpu"), euclidean_scale(e.z) if similarity == "euclidean" else None, "query")
    holds = torch.zeros(len(a), dtype=torch.float64)
    for part in row_slices(len(a), budget // 64):
        key = pair_keys(both, both, a[part], sides[part], budget // 2)
        holds[part] = (key[:, 0] > key[:, 1]).double()
    total, count = (torch.bincount(a, weights, len(is_query))[is_query] for weights in (holds, torch.ones_like(holds)))
    return total / count, len(a)  # 0 / 0 is NaN
