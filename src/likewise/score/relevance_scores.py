"""Metrics per query by relevance: queries are ranked in parts, so that the hits of all of them are never in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Metric
from likewise.core.retrieval.integer_scores import euclidean_scale, pair_keys, prepare, row_slices
from likewise.core.types import Embedded, LikewiseError, Retrieval
from likewise.score.metrics import graded_depth, is_graded, last_rank, needs_graded_hits, reach
from likewise.score.metrics.ranking import query_of_hit
from likewise.score.retrieve import Scoring, retrieve

HIT_BYTES = 128
"""Bytes of working memory for each hit of the queries that are ranked together."""

MIN_PART_QUERIES = 64
"""Smallest number of queries that are ranked together."""


def measure_by_relevance(
    e: Embedded, scoring: Scoring, chosen: Mapping[str, Metric], progress: Callable[[float], None]
) -> tuple[dict[str, Float[Tensor, "Q"]], Retrieval]:
    """Return metrics per query and the first results of every query, without its hits."""
    relevance = scoring.relevance
    assert relevance is not None
    is_query, in_gallery = scoring.sides(e)
    depth, queries, stored = graded_depth(chosen), int(is_query.sum()), scoring.stored
    hit_values = needs_graded_hits(chosen)
    given = relevance.for_ranking(scoring.exact_device, best=depth, hit_values=hit_values)
    deep, budget = replace(scoring, stored=max(stored, depth)), scoring.budget
    values, parts, at = [], [], 0
    size = max(MIN_PART_QUERIES, budget // (HIT_BYTES * max(1, int(in_gallery.sum()))))
    while at < queries or not parts:  # without queries, `retrieve` raises
        part = slice(at, min(at + size, queries))
        found = retrieve(e, deep, reach(chosen), relevance=given, part=part)
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


def triplet_agreement(e: Embedded, scoring: Scoring) -> tuple[Float[Tensor, "Q"], int]:
    """Return the share of the judged triplets of every query that hold, NaN without triplets; and the number of triplets.

    Similarities are compared exactly; equal ones count as wrong.
    """
    relevance, is_query = scoring.relevance, torch.as_tensor(scoring.sides(e)[0])
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
    both = prepare(
        e.z, torch.device("cpu"), euclidean_scale(e.z) if scoring.similarity == "euclidean" else None, "query"
    )
    holds = torch.zeros(len(a), dtype=torch.float64)
    for part in row_slices(len(a), scoring.budget // 64):
        key = pair_keys(both, both, a[part], sides[part], scoring.budget // 2)
        holds[part] = (key[:, 0] > key[:, 1]).double()
    total, count = (torch.bincount(a, weights, len(is_query))[is_query] for weights in (holds, torch.ones_like(holds)))
    return total / count, len(a)  # 0 / 0 is NaN
