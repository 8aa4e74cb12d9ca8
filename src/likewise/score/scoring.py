"""Compute scores from embeddings: rank the gallery once, then every metric per query, means and intervals.

By a relevance, queries are ranked in parts, so that the hits of all of them are never in memory at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.contracts import Metric
from likewise.core.progress import Bar, bar
from likewise.core.retrieval.integer_scores import euclidean_scale, pair_keys, prepare, row_slices
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.data.schema import in_order
from likewise.data.taxonomies import taxonomy
from likewise.score.checks import all_relevant_note, check_depth, check_set_metrics, direction_note
from likewise.score.intervals import MIN_INTERVAL_UNITS, mean_interval
from likewise.score.label_scores import score_labels
from likewise.score.metrics import (
    clustering,
    graded_depth,
    is_graded,
    is_set_metric,
    last_rank,
    measure_set,
    metric,
    needs_graded_hits,
    needs_triplets,
    reach,
    undefined_reason,
    verification,
)
from likewise.score.metrics.ranking import first_results, query_of_hit, starts
from likewise.score.metrics.verification import MAX_EXACT_PAIRS
from likewise.score.query_sample import (
    USUAL_QUERY_COUNT,
    draw_queries,
    interval_of_all,
    mean_over_sampled_classes,
    with_sample,
)
from likewise.score.retrieve import (
    MAX_STORED_RESULTS,
    Scoring,
    count_relevant_rows,
    max_results,
    relevance_of,
    retrieve,
)
from likewise.score.tree_levels import measure, needs_tree, plan_levels, tree_facts, without_levels
from likewise.score.wrong_labels import check_reviewable, correct_scores

MAX_SCORED_CAMERAS = 50
"""Number of cameras up to which the queries of each camera have their own scores."""


def score(e: Embedded, scoring: Scoring, *, hint: bool = False) -> tuple[Scores, Retrieval | None]:
    """Return every metric per query, and the ranking; no scores and None if all metrics are of the whole set.

    Args:
        hint: name `--queries` once if the ranking will take long.
    """
    if not scoring.metrics:
        raise LikewiseError("evaluate: at least one metric must be given, got none; see `likewise list metrics`")
    check_set_metrics(scoring.metrics, scoring.items)
    if any(map(clustering.knows, scoring.metrics)):
        clustering.check_cost(e.z.to(scoring.exact_device), e.y)
    chosen = {name: metric(name) for name in scoring.metrics if not is_set_metric(name)}
    if not chosen:
        return Scores({}), None
    check_depth("evaluate", chosen, max_results(*scoring.sides(e)))
    relevance = scoring.relevance or relevance_of(scoring.items, e.row.numpy())
    scoring = replace(scoring, relevance=relevance)
    facts = {} if relevance is None else {"relevance": relevance.facts}
    judged = {}
    if needs_triplets(chosen):
        agreed, count = triplet_agreement(e, scoring)
        judged = {name: agreed for name in chosen if needs_triplets([name])}
        facts = {"relevance": facts["relevance"] | {"triplets": count}}
    with bar("rank", int(scoring.sides(e)[0].sum()), quiet=scoring.quiet) as shown:
        rest = {name: one for name, one in chosen.items() if name not in judged}
        values, found = _measure(e, scoring, rest, with_hint(shown, scoring) if hint else shown.reach)
    each = {name: (values | judged)[name].cpu().numpy() for name in chosen}
    on_cpu = {f.name: t.cpu() for f in dataclasses.fields(found) if (t := getattr(found, f.name)) is not None}
    found = Retrieval(**on_cpu)
    by_class = relevance is None or relevance.source.by == "class"
    rival = nearest_wrong(found, e.y) if by_class else None
    queries = e.row[found.query].numpy(), e.y[found.query].numpy()
    return Scores(each, *queries, rival, sample=scoring.drawn, **facts), found


LONG_RANKING_SECONDS = 300.0
"""Estimated time of a ranking from which a message names `--queries`."""

MIN_TIMED_SECONDS = 10.0
"""Time from the first progress of a ranking to the estimate of its time."""


def with_hint(shown: Bar, scoring: Scoring) -> Callable[[float], None]:
    """Return the progress of a ranking, which also names `--queries` once if all queries will take long."""
    if scoring.drawn is not None or shown.total <= USUAL_QUERY_COUNT:
        return shown.reach
    first, hinted = None, False

    def progress(share: float) -> None:
        nonlocal first, hinted
        shown.reach(share)
        first = first or (share, time.monotonic())  # what is prepared before the first queries counts for none of them
        passed = time.monotonic() - first[1]
        if hinted or share <= first[0] or passed < MIN_TIMED_SECONDS:
            return
        hinted, left = True, passed / (share - first[0]) * (1 - share)
        if left >= LONG_RANKING_SECONDS:
            shown.note(
                f"ranking all {shown.total:,} queries takes about {left / 60:.0f} minutes; `likewise evaluate ... "
                f"--queries {USUAL_QUERY_COUNT}` ranks a random sample of them against the whole gallery, and its intervals "
                "include the sampling"
            )

    return progress


def _measure(
    e: Embedded, scoring: Scoring, chosen: Mapping[str, Metric], progress: Callable[[float], None]
) -> tuple[dict[str, Float[torch.Tensor, "Q"]], Retrieval]:
    """Return metrics per query and the ranking: metrics of the class tree by labels, others by relevance if pairs have one."""
    by_pairs = scoring.relevance is not None and scoring.relevance.has_pairs
    graded = {name: one for name, one in chosen.items() if by_pairs and not needs_tree([name])}
    plain = {name: one for name, one in chosen.items() if name not in graded}
    values, found = {}, None
    if plain or not graded:
        levels = plan_levels(plain, scoring.items, e.y)
        found = retrieve(e, scoring, reach(plain), levels=levels, progress=progress)
        if levels is None:
            values = {name: one(found) for name, one in plain.items()}
        else:
            values, found = measure(found, plain, levels), without_levels(found, levels, scoring.stored)
    if graded:
        by_relevance, found = measure_by_relevance(e, scoring, graded, progress)
        values |= by_relevance
    assert found is not None
    return values, found


def nearest_wrong(found: Retrieval, y: Int[torch.Tensor, "N"]) -> Int[np.ndarray, "Q"]:
    """Return the label of the nearest wrong result of each query; -1 if its first ten results are relevant."""
    row, match = (side[:, :MAX_STORED_RESULTS] for side in (found.row, found.match))
    wrong = ~match & (row >= 0)
    first = row.gather(1, wrong.int().argmax(1, keepdim=True))[:, 0]
    return torch.where(wrong.any(1), y[first.clamp_min(0)], -1).numpy()


def with_tree(items: Items, name: str | None) -> Items:
    """Return the data with the class tree of this name; unchanged without a name."""
    return items if name is None else replace(items, taxonomy=taxonomy(name, items.class_name))


def as_compared(e: Embedded, similarity: str) -> Embedded:
    """Return the embeddings for a similarity: of unit length for "cosine", raw for "euclidean"."""
    return e if similarity == "cosine" else replace(e, z=e.e)


def mean_score(e: Embedded, scoring: Scoring) -> float:
    """Return the mean of one metric over the queries, for validation."""
    scores, _ = score(as_compared(e, scoring.similarity), scoring)
    (value,) = scores.each.values()
    if np.isnan(value).all():
        raise LikewiseError(
            "train: the validation split must have two samples of a class, but every class has one; use a larger val share"
            if scoring.relevance is None
            else f"train: no validation sample has another relevant one by {scoring.relevance.facts['spec']}; use a larger val "
            "share"
        )
    return float(np.nanmean(value))


def summary(scores: Scores, e: Embedded, scoring: Scoring) -> dict:
    """Return the content of scores.json: means with 95 % intervals, means over classes, and metrics of the whole set.

    Means are over the queries with a relevant gallery row; "unscored" is the number of the other queries. "no_interval" has the
    reason for every metric without an interval, "no_value" for every metric of the whole set without a value.
    """
    each = np.stack(list(scores.each.values()), 1) if scores.each else np.zeros((0, 1))
    lonely = np.isnan(each).all(1)
    if scores.each and lonely.all():
        raise LikewiseError(no_value_error(len(each), scores.relevance))
    if scores.each and scores.relevance is None and len(e.y.unique()) == 1:
        raise LikewiseError(
            f"evaluate: there must be two classes or more, but all {len(e.y)} rows are of one class, so every result would be "
            "right; add classes"
        )
    value, sure = {}, {}
    if scores.each:
        over_classes = len(np.unique(scores.label[~lonely])) >= MIN_INTERVAL_UNITS
        units = (scores.label, scores.rival) if over_classes else (None, None)
        known = {name: column for name, column in scores.each.items() if not np.isnan(column).all()}
        found = {name: mean_interval(column, *units) for name, column in known.items()}
        value = {name: found[name].mean if name in found else np.nan for name in scores.each}
        sure = {
            "interval": {name: [one.low, one.high] for name, one in found.items() if not one.reason},
            "no_interval": {name: one.reason for name, one in found.items() if one.reason},
            "interval_over": (scores.relevance or {}).get("units", "classes") if over_classes else "queries",
            "class_mean": {name: mean_over_classes(column, scores) for name, column in scores.each.items()},
            **of_all_queries(scores, known),
        }
    whole = [name for name in scoring.metrics if is_set_metric(name)]
    if whole:
        of_pairs, drawn = measure_pairs(whole, e, scoring)
        rest = [name for name in whole if name not in of_pairs]
        value |= measure_set(rest, e.z.to(scoring.exact_device), e.y.to(scoring.exact_device)) if rest else {}
        value |= {name: one[0] for name, one in of_pairs.items()}
        ends = {name: list(one[1:]) for name, one in of_pairs.items() if not np.isnan(one).any()}
        sure |= {"sample_interval": sure.get("sample_interval", {}) | ends, **drawn} if of_pairs else {}
    reasons = {name: undefined_reason(name, e.y) for name in whole if np.isnan(value[name])}
    return {
        "metrics": {name: value[name] for name in scoring.metrics},
        **sure,
        **({"no_value": reasons} if reasons else {}),
        **({"relevance": scores.relevance} if scores.relevance else {}),
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()) + (scores.sample.unscored if scores.sample else 0),
        **fewer_queries(scores, int((~lonely).sum())),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": scoring.similarity,
    }


def no_value_error(queries: int, relevance: dict | None) -> str:
    """Return the error if no query has a value: it has no relevant row, by its class or by the relevance with these facts."""
    if relevance is None or relevance["relevant"] == "same class":
        return (
            f"evaluate: none of the {queries} queries has a relevant gallery row: every class has one image, the others are "
            "excluded (same `group`, or same class and `camera`), or the gallery has none of the queries' classes; add at least "
            "two images of a class"
        )
    return (
        f"evaluate: none of the {queries} queries has a relevant gallery row by {relevance['spec']} ({relevance['relevant']}): "
        "all values are lower, not known, or of excluded rows (same `group`); check the values, or lower the threshold"
    )


def measure_pairs(
    names: Sequence[str], e: Embedded, scoring: Scoring
) -> tuple[dict[str, tuple[float, float, float]], dict]:
    """Return the metrics over all pairs that a sample of the rows estimates, with their intervals, and facts about the sample.

    Both are empty if no sample is wanted, if it would be all rows, or if all pairs of the set are compared exactly.
    """
    names, rows = list(filter(verification.knows, names)), len(e.y)
    if not names or scoring.sample is None or scoring.sample >= rows or rows * (rows - 1) // 2 <= MAX_EXACT_PAIRS:
        return {}, {}
    drawn = torch.as_tensor(draw_queries(e.y.numpy(), scoring.sample))
    device = scoring.exact_device
    found = verification.measure_sample(names, e.z.to(device), e.y.to(device), drawn.to(device))
    return found, {"pairs_sample": {"rows": len(drawn), "of": rows}}


def of_all_queries(scores: Scores, known: Mapping[str, Float[np.ndarray, "Q"]]) -> dict:
    """Return facts about the sample of queries, and the intervals of the means over all queries; {} without a sample."""
    if scores.sample is None:
        return {}
    found = {name: interval_of_all(column, scores.sample) for name, column in known.items()}
    return {
        "sample": scores.sample.facts,
        "sample_interval": {name: list(ends) for name, ends in found.items() if ends is not None},
    }


def mean_over_classes(value: Float[np.ndarray, "Q"], scores: Scores) -> float:
    """Return the mean of the classes' means, of a sample its estimate; NaN if no query has a value."""
    if scores.sample is not None:
        return mean_over_sampled_classes(value, scores.label, scores.sample)
    scored = ~np.isnan(value)
    _, number, count = np.unique(scores.label[scored], return_inverse=True, return_counts=True)
    return float((np.bincount(number, value[scored]) / count).mean()) if len(count) else float("nan")


def fewer_queries(scores: Scores, queries: int) -> dict:
    """Return the metrics that are defined for fewer queries than scored, each with that number; {} if there are none."""
    count = {name: int((~np.isnan(value)).sum()) for name, value in scores.each.items()}
    fewer = {name: n for name, n in count.items() if n < queries}
    return {"scored": fewer} if fewer else {}


def score_all(e: Embedded, scoring: Scoring) -> tuple[dict, Scores, Retrieval | None]:
    """Return the content of scores.json, the scores per query and the ranking.

    Named galleries and cameras are also scored separately, with the same sample of queries if `scoring.sample` draws one. With
    reviewed labels, the result has corrected scores.
    """
    if scoring.review is not None:
        check_reviewable(scoring)
        scoring = replace(scoring, stored=max(scoring.stored, reach(scoring.metrics).k))
    scoring = with_sample(e, scoring)
    items, rows, metrics = scoring.items, e.row.numpy(), scoring.metrics
    scores, found = score(e, scoring, hint=True)
    result = summary(scores, e, scoring) | tree_facts(metrics, items, e.y.numpy(), scores)
    if found is None:
        return result, scores, found
    if items.label_sets is not None:
        result |= score_labels(found, e, scoring)
    known = scoring.relevance or relevance_of(items, rows)
    notes = [direction_note(e.z)] if scoring.similarity == "cosine" else []
    notes.append(all_relevant_note("evaluate", items, scoring.protocol, rows, known, metrics))
    if any(notes):
        result["note"] = "; ".join(filter(None, notes))
    alone = replace(scoring, metrics=[name for name in metrics if not is_set_metric(name)], stored=MAX_STORED_RESULTS)
    names = scoring.protocol.galleries(items, rows)
    if len(names) > 1:
        result["galleries"] = {name: score_gallery(name, e, alone, len(found.query)) for name in names}
    if items.camera is not None:
        result |= score_cameras(scores, e, alone)
    if scoring.review is not None:
        result["corrected"] = correct_scores(e, scoring, found)
        found = first_results(found, MAX_STORED_RESULTS)
    return result, scores, found


def score_gallery(name: str, e: Embedded, scoring: Scoring, queries: int) -> dict:
    """Return the scores of all queries in a named gallery alone; no metrics if it has no relevant rows."""
    protocol, items, rows = scoring.protocol.only(name), scoring.items, e.row.numpy()
    available = max_results(*protocol.query_gallery(items, rows))
    fit = [m for m in scoring.metrics if reach([m]).k <= available]  # a small gallery has fewer than 10 results
    if not fit or not count_relevant_rows(items, protocol, rows, scoring.relevance).any():
        return {"metrics": {}, "queries": 0, "unscored": queries}
    scoring = replace(scoring, protocol=protocol, metrics=fit)
    return summary(score(e, scoring)[0], e, scoring)


def score_cameras(scores: Scores, e: Embedded, scoring: Scoring) -> dict:
    """Return the scores of the queries of each camera, and of all queries in a gallery of the other cameras only.

    Args:
        scores: the scores of all queries.
    """
    assert scoring.items.camera is not None
    result, camera, (first, *_) = {}, scoring.items.camera[scores.query], scores.each
    names = in_order(set(camera.tolist()) - {""})
    if len(names) <= MAX_SCORED_CAMERAS:
        alone = {name: _of_queries(scores, camera == name) for name in names}
        result["cameras"] = {
            name: {"metrics": {}, "queries": 0, "unscored": len(some.query)}
            if np.isnan(some.each[first]).all()
            else summary(some, e, scoring)
            for name, some in alone.items()
        }
    scoring = replace(scoring, other_cameras=True)
    return result | {"other_cameras": summary(score(e, scoring)[0], e, scoring)}


def _of_queries(scores: Scores, chosen: Bool[np.ndarray, "Q"]) -> Scores:
    """Return the scores of some queries."""
    each = {name: value[chosen] for name, value in scores.each.items()}
    rival = None if scores.rival is None else scores.rival[chosen]
    return Scores(each, scores.query[chosen], scores.label[chosen], rival, scores.relevance)


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
        values.append(_measure_part(found, chosen, relevance.threshold))
        parts.append(_without_hits(above(found, relevance.threshold), stored))
        at = part.stop
        size = max(MIN_PART_QUERIES, int(budget / (HIT_BYTES * max(1.0, float(found.relevant.double().mean())))))
        progress(at / max(1, queries))
    return {name: torch.cat([one[name] for one in values]) for name in chosen}, _joined(parts)


def _measure_part(found: Retrieval, chosen: Mapping[str, Metric], threshold: float) -> dict[str, Float[Tensor, "Q"]]:
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
    return replace(
        found, match=found.value >= threshold, relevant=count, hit_rank=found.hit_rank[kept], start=starts(count),
        hit_row=None, hit_value=None,
    )  # fmt: skip


def _without_hits(found: Retrieval, stored: int) -> Retrieval:
    nothing = {"hit_rank": found.hit_rank[:0], "start": torch.zeros_like(found.start), "best": None, "hit_row": None}
    return replace(first_results(found, stored), depth=torch.zeros_like(found.depth), hit_value=None, **nothing)


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
