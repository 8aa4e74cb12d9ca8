"""Compute scores from embeddings: rank the gallery once, then every metric per query, means and intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from likewise.core.contracts import Metric, Protocol
from likewise.core.progress import bar
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.data.schema import in_order
from likewise.score.answers import MAX_STORED_RESULTS, all_relevant_note, count_relevant_rows, max_results
from likewise.score.intervals import MIN_INTERVAL_UNITS, mean_interval
from likewise.score.metrics import (
    is_label_free,
    is_set_metric,
    measure_set,
    metric,
    needs_triplets,
    reach,
    undefined_reason,
)
from likewise.score.relevance import RelevanceOfRows, relevance_of
from likewise.score.resolution import direction_note

MAX_SCORED_CAMERAS = 50
"""Number of cameras up to which the queries of each camera have their own scores."""


def score(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    metrics: Sequence[str],
    similarity: str,
    device: torch.device,
    quiet: bool = False,
    *,
    budget: int = WORKING_MEMORY_BYTES,
    exclude: Int[np.ndarray, "M 2"] | None = None,
    other_cameras: bool = False,
    stored: int = MAX_STORED_RESULTS,
    relevance: RelevanceOfRows | None = None,
) -> tuple[Scores, Retrieval | None]:
    """Return every metric per query, and the ranking; no scores and None if all metrics are of the whole set.

    Args:
        relevance: what is relevant. None: rows with a label of the query if samples have several labels, else those of its class.
    """
    if not metrics:
        raise LikewiseError("evaluate: at least one metric must be given, got none; see `likewise list metrics`")
    check_set_metrics(metrics, items)
    chosen = {name: metric(name) for name in metrics if not is_set_metric(name)}
    if not chosen:
        return Scores({}), None
    rows = e.row.numpy()
    relevance = relevance or relevance_of(items, rows)
    wanted, sides = reach(chosen), protocol.query_gallery(items, rows)
    if wanted.k > (available := max_results(*sides)):
        raise LikewiseError(
            f"evaluate: the metrics need {wanted.k} results of every query, but there are at most {available}; use a "
            "smaller k in --metrics"
        )
    facts = {} if relevance is None else {"relevance": relevance.facts}
    agreed = None
    if needs_triplets(chosen):
        from likewise.score.relevance_scores import triplet_agreement

        agreed, count = triplet_agreement(e, torch.as_tensor(sides[0]), relevance, similarity, budget)
        facts = {"relevance": facts["relevance"] | {"triplets": count}}
    with bar("rank", 100, quiet=quiet) as shown:
        how = {
            "similarity": similarity, "device": _with_float64(device), "budget": budget, "exclude": exclude,
            "other_cameras": other_cameras, "stored": stored, "progress": shown.reach,
        }  # fmt: skip
        values, found = _measure(e, items, protocol, chosen, relevance, agreed, how)
    each = {name: values[name].cpu().numpy() for name in chosen}
    on_cpu = {f.name: t.cpu() for f in dataclasses.fields(found) if (t := getattr(found, f.name)) is not None}
    found = Retrieval(**on_cpu)
    by_class = relevance is None or relevance.source.by == "class"
    rival = nearest_wrong(found, e.y) if by_class else None
    return Scores(each, e.row[found.query].numpy(), e.y[found.query].numpy(), rival, **facts), found


def _measure(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    chosen: dict[str, Metric],
    relevance: RelevanceOfRows | None,
    agreed: Float[torch.Tensor, "Q"] | None,
    how: dict,
) -> tuple[dict[str, Float[torch.Tensor, "Q"]], Retrieval]:
    """Return every metric per query and the ranking: metrics of the class tree by labels, others by relevance if there is one.

    Args:
        agreed: share of judged triplets of every query, if a metric needs it.
        how: arguments of `retrieve`.
    """
    from likewise.score.levels import needs_tree
    from likewise.score.relevance_scores import measure_by_relevance

    graded = (
        {} if relevance is None or not relevance.has_pairs else {n: m for n, m in chosen.items() if not needs_tree([n])}
    )
    judged = [name for name in chosen if needs_triplets([name])]
    graded, plain = ({n: m for n, m in some.items() if n not in judged} for some in (graded, chosen))
    plain = {name: m for name, m in plain.items() if name not in graded}
    values, found = ({}, None) if agreed is None else (dict.fromkeys(judged, agreed), None)
    if plain or not graded:
        values_by_label, found = _measure_by_labels(e, items, protocol, plain, how)
        values |= values_by_label
    if graded and relevance is not None:
        by_relevance, found = measure_by_relevance(e, items, protocol, graded, relevance, **how)
        values |= by_relevance
    assert found is not None
    return values, found


def _measure_by_labels(
    e: Embedded, items: Items, protocol: Protocol, chosen: dict[str, Metric], how: dict
) -> tuple[dict[str, Float[torch.Tensor, "Q"]], Retrieval]:
    """Return metrics per query and the ranking, with rows of the query's class, or of its group on a level, as relevant."""
    from likewise.score.levels import measure, plan_levels, without_levels
    from likewise.score.retrieve import retrieve

    levels = plan_levels(chosen, items, e.y)
    found = retrieve(e, items, protocol, reach(chosen), levels=levels, **how)
    if levels is None:
        return {name: m(found) for name, m in chosen.items()}, found
    return measure(found, chosen, levels), without_levels(found, levels, how["stored"])


def check_set_metrics(metrics: Sequence[str], items: Items) -> None:
    """Raise for a set metric that needs one class per sample, if samples have several labels."""
    wrong = [name for name in metrics if is_set_metric(name) and not is_label_free(name)]
    if items.label_sets is not None and wrong:
        raise LikewiseError(
            f"evaluate: '{wrong[0]}' needs one class per sample, but samples of '{items.name}' have several labels; leave it out"
        )


def nearest_wrong(found: Retrieval, y: Int[torch.Tensor, "N"]) -> Int[np.ndarray, "Q"]:
    """Return the label of the nearest wrong result of each query; -1 if its first ten results are relevant."""
    row, match = (side[:, :MAX_STORED_RESULTS] for side in (found.row, found.match))
    wrong = ~match & (row >= 0)
    first = row.gather(1, wrong.int().argmax(1, keepdim=True))[:, 0]
    return torch.where(wrong.any(1), y[first.clamp_min(0)], -1).numpy()


def _with_float64(device: torch.device) -> torch.device:
    """Return the device, or the CPU if the device has no float64, which exact ranking needs."""
    return torch.device("cpu") if device.type == "mps" else device


def with_tree(items: Items, name: str | None) -> Items:
    """Return the data with the class tree of this name; unchanged without a name."""
    from likewise.data.taxonomies import taxonomy

    return items if name is None else dataclasses.replace(items, taxonomy=taxonomy(name, items.class_name))


def as_compared(e: Embedded, similarity: str) -> Embedded:
    """Return the embeddings for a similarity: of unit length for "cosine", raw for "euclidean"."""
    return e if similarity == "cosine" else dataclasses.replace(e, z=e.e)


def mean_score(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    name: str,
    similarity: str,
    device: torch.device,
    relevance: RelevanceOfRows | None = None,
) -> float:
    """Return the mean of one metric over the queries, for validation."""
    e = as_compared(e, similarity)
    scores, _ = score(e, items, protocol, [name], similarity, device, quiet=True, relevance=relevance)
    value = scores.each[name]
    if np.isnan(value).all():
        raise LikewiseError(
            "train: the validation split must have two samples of a class, but every class has one; use a larger val share"
            if relevance is None
            else f"train: no validation sample has another relevant one by {relevance.facts['spec']}; use a larger val share"
        )
    return float(np.nanmean(value))


def summary(scores: Scores, e: Embedded, similarity: str, metrics: Sequence[str], device: torch.device) -> dict:
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
            "class_mean": {name: mean_over_classes(column, scores.label) for name, column in scores.each.items()},
        }
    whole = [name for name in metrics if is_set_metric(name)]
    if whole:
        device = _with_float64(device)
        value |= measure_set(whole, e.z.to(device), e.y.to(device))
    reasons = {name: undefined_reason(name, e.y) for name in whole if np.isnan(value[name])}
    return {
        "metrics": {name: value[name] for name in metrics},
        **sure,
        **({"no_value": reasons} if reasons else {}),
        **({"relevance": scores.relevance} if scores.relevance else {}),
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()),
        **fewer_queries(scores, int((~lonely).sum())),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": similarity,
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


def mean_over_classes(value: Float[np.ndarray, "Q"], label: Int[np.ndarray, "Q"]) -> float:
    """Return the mean of the classes' means; NaN if no query has a value."""
    scored = ~np.isnan(value)
    _, number, count = np.unique(label[scored], return_inverse=True, return_counts=True)
    return float((np.bincount(number, value[scored]) / count).mean()) if len(count) else float("nan")


def fewer_queries(scores: Scores, queries: int) -> dict:
    """Return the metrics that are defined for fewer queries than scored, each with that number; {} if there are none."""
    count = {name: int((~np.isnan(value)).sum()) for name, value in scores.each.items()}
    fewer = {name: n for name, n in count.items() if n < queries}
    return {"scored": fewer} if fewer else {}


def score_with_galleries(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    metrics: Sequence[str],
    similarity: str,
    device: torch.device,
    quiet: bool,
    *,
    budget: int = WORKING_MEMORY_BYTES,
    exclude: Int[np.ndarray, "M 2"] | None = None,
    stored: int = MAX_STORED_RESULTS,
    relevance: RelevanceOfRows | None = None,
) -> tuple[dict, Scores, Retrieval | None]:
    """Return the content of scores.json, the scores per query and the ranking. Named galleries and cameras are also scored
    separately."""
    from likewise.score.label_scores import score_labels
    from likewise.score.levels import tree_facts

    how = {"budget": budget, "exclude": exclude, "relevance": relevance}
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet, stored=stored, **how)
    result = summary(scores, e, similarity, metrics, device) | tree_facts(metrics, items, e.y.numpy(), scores)
    if found is not None and items.label_sets is not None:
        result |= score_labels(metrics, found, e, items, protocol, exclude)
    notes = [direction_note(e.z)] if similarity == "cosine" and found is not None else []
    if found is not None:
        known = relevance or relevance_of(items, e.row.numpy())
        notes.append(all_relevant_note("evaluate", items, protocol, e.row.numpy(), known, metrics))
    if any(notes):
        result["note"] = "; ".join(filter(None, notes))
    names = protocol.galleries(items, e.row.numpy())
    if found is not None and len(names) > 1:
        per_query = [name for name in metrics if not is_set_metric(name)]
        alone = {}
        for name in names:
            one = protocol.only(name)
            available = max_results(*one.query_gallery(items, e.row.numpy()))
            fit = [m for m in per_query if reach([m]).k <= available]  # a small gallery has fewer than 10 results
            if not fit or not count_relevant_rows(items, one, e.row.numpy(), relevance).any():
                alone[name] = {"metrics": {}, "queries": 0, "unscored": len(found.query)}
                continue
            some, _ = score(e, items, one, fit, similarity, device, quiet, **how)
            alone[name] = summary(some, e, similarity, fit, device)
        result["galleries"] = alone
    if found is not None and items.camera is not None:
        result |= score_cameras(scores, e, items, protocol, similarity, device, quiet, **how)
    return result, scores, found


def score_cameras(
    scores: Scores,
    e: Embedded,
    items: Items,
    protocol: Protocol,
    similarity: str,
    device: torch.device,
    quiet: bool,
    **how,
) -> dict:
    """Return the scores of the queries of each camera, and of all queries in a gallery of the other cameras only.

    Args:
        scores: the scores of all queries.
        how: budget and excluded pairs, as in `score`.
    """
    assert items.camera is not None
    result, camera, metrics = {}, items.camera[scores.query], list(scores.each)
    names = in_order(set(camera.tolist()) - {""})
    if len(names) <= MAX_SCORED_CAMERAS:
        alone = {name: _of_queries(scores, camera == name) for name in names}
        result["cameras"] = {
            name: {"metrics": {}, "queries": 0, "unscored": len(some.query)}
            if np.isnan(some.each[metrics[0]]).all()
            else summary(some, e, similarity, metrics, device)
            for name, some in alone.items()
        }
    others, _ = score(e, items, protocol, metrics, similarity, device, quiet, other_cameras=True, **how)
    return result | {"other_cameras": summary(others, e, similarity, metrics, device)}


def _of_queries(scores: Scores, chosen: Bool[np.ndarray, "Q"]) -> Scores:
    """Return the scores of some queries."""
    each = {name: value[chosen] for name, value in scores.each.items()}
    rival = None if scores.rival is None else scores.rival[chosen]
    return Scores(each, scores.query[chosen], scores.label[chosen], rival, scores.relevance)
