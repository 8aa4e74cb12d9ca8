"""Compute scores from embeddings: rank the gallery once, then every metric per query, means and intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from likewise.contracts import Protocol
from likewise.data.schema import in_order
from likewise.distributed.process_group import rank_in_shares, world
from likewise.evaluation.answers import count_relevant_rows, hidden_groups, max_results
from likewise.evaluation.resolution import direction_note
from likewise.io.progress import bar
from likewise.metrics import RankingDepth, is_set_metric, measure_set, metric, reach, undefined_reason
from likewise.numerics.intervals import MIN_INTERVAL_UNITS, mean_interval
from likewise.retrieval.integer_scores import euclidean_scale
from likewise.retrieval.ranking import WORKING_MEMORY_BYTES, rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

if TYPE_CHECKING:
    from likewise.evaluation.levels import LevelPlan

MAX_STORED_RESULTS = 10
"""Results stored for each query, for figures and tables."""

MAX_SCORED_CAMERAS = 50
"""Number of cameras up to which the queries of each camera have their own scores."""


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
    if is_query.all() and in_gallery.all() and world()[1] == 1:
        labels = None if levels is None else (levels.label, levels.label)
        return rank(e.z, y, group=group, exclude=pairs, levels=labels, **how)
    q, g = is_query.nonzero()[:, 0], in_gallery.nonzero()[:, 0]
    z, gallery_z = (e.z if side.all() else e.z[side] for side in (is_query, in_gallery))
    how["scale"] = (
        euclidean_scale(z, gallery_z) if similarity == "euclidean" else None
    )  # the same scale in all processes
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
            exclude=None if own is None else own - torch.tensor([mine.start, 0]), **how,
        )  # fmt: skip

    found = rank_in_shares(len(q), rank_some)
    g = g.to(found.row.device)
    row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
    hit_row = None if found.hit_row is None else g[found.hit_row]
    return dataclasses.replace(found, query=q.to(g.device), row=row, hit_row=hit_row)


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
) -> tuple[Scores, Retrieval | None]:
    """Return every metric per query, and the ranking; no scores and None if all metrics are of the whole set."""
    from likewise.evaluation.levels import measure, plan_levels, without_levels

    if not metrics:
        raise LikewiseError("evaluate: at least one metric must be given, got none; see `likewise list metrics`")
    chosen = {name: metric(name) for name in metrics if not is_set_metric(name)}
    if not chosen:
        return Scores({}), None
    wanted, available = reach(chosen), max_results(*protocol.query_gallery(items, e.row.numpy()))
    if wanted.k > available:
        raise LikewiseError(
            f"evaluate: the metrics need {wanted.k} results of every query, but there are at most {available}; use a "
            "smaller k in --metrics"
        )
    levels = plan_levels(chosen, items, e.y)
    with bar("rank", 100, quiet=quiet) as shown:
        found = retrieve(
            e, items, protocol, wanted, similarity=similarity, device=_with_float64(device), budget=budget, exclude=exclude,
            other_cameras=other_cameras, levels=levels, stored=stored, progress=shown.reach,
        )  # fmt: skip
    if levels is None:
        values = {name: m(found) for name, m in chosen.items()}
    else:
        values, found = measure(found, chosen, levels), without_levels(found, levels, stored)
    each = {name: value.cpu().numpy() for name, value in values.items()}
    on_cpu = {f.name: t.cpu() for f in dataclasses.fields(found) if (t := getattr(found, f.name)) is not None}
    found = Retrieval(**on_cpu)
    return Scores(each, e.row[found.query].numpy(), e.y[found.query].numpy(), nearest_wrong(found, e.y)), found


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
    from likewise.taxonomies import taxonomy

    return items if name is None else dataclasses.replace(items, taxonomy=taxonomy(name, items.class_name))


def as_compared(e: Embedded, similarity: str) -> Embedded:
    """Return the embeddings for a similarity: of unit length for "cosine", raw for "euclidean"."""
    return e if similarity == "cosine" else dataclasses.replace(e, z=e.e)


def mean_score(
    e: Embedded, items: Items, protocol: Protocol, name: str, similarity: str, device: torch.device
) -> float:
    """Return the mean of one metric over the queries, for validation."""
    scores, _ = score(as_compared(e, similarity), items, protocol, [name], similarity, device, quiet=True)
    value = scores.each[name]
    if np.isnan(value).all():
        raise LikewiseError(
            "train: the validation split must have two samples of a class, but every class has one; use a larger val share"
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
        raise LikewiseError(
            f"evaluate: none of the {len(each)} queries has a relevant gallery row: every class has one image, the others are "
            "excluded (same `group`, or same class and `camera`), or the gallery has none of the queries' classes; add at least "
            "two images of a class"
        )
    if scores.each and len(e.y.unique()) == 1:
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
            "interval_over": "classes" if over_classes else "queries",
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
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()),
        **fewer_queries(scores, int((~lonely).sum())),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": similarity,
    }


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
) -> tuple[dict, Scores, Retrieval | None]:
    """Return the content of scores.json, the scores per query and the ranking. Named galleries and cameras are also scored
    separately."""
    from likewise.evaluation.levels import tree_facts

    how = {"budget": budget, "exclude": exclude}
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet, stored=stored, **how)
    result = summary(scores, e, similarity, metrics, device) | tree_facts(metrics, items, e.y.numpy(), scores)
    if similarity == "cosine" and found is not None and (note := direction_note(e.z)):
        result["note"] = note
    names = protocol.galleries(items, e.row.numpy())
    if found is not None and len(names) > 1:
        per_query = [name for name in metrics if not is_set_metric(name)]
        alone = {}
        for name in names:
            one = protocol.only(name)
            available = max_results(*one.query_gallery(items, e.row.numpy()))
            fit = [m for m in per_query if reach([m]).k <= available]  # a small gallery has fewer than 10 results
            if not fit or not count_relevant_rows(items, one, e.row.numpy()).any():
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
    return Scores(each, scores.query[chosen], scores.label[chosen], rival)
