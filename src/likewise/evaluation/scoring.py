"""Compute scores from embeddings: rank the gallery once, then every metric per query, means and intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Int

from likewise.contracts import Protocol
from likewise.distributed.process_group import rank_in_shares, world
from likewise.evaluation.answers import count_relevant_rows, max_results
from likewise.io.progress import bar
from likewise.metrics import RankingDepth, is_set_metric, measure_set, metric, reach
from likewise.numerics.bootstrap import MIN_INTERVAL_UNITS, bootstrap
from likewise.retrieval.integer_scores import euclidean_scale
from likewise.retrieval.ranking import WORKING_MEMORY_BYTES, rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

MAX_STORED_RESULTS = 10
"""Results stored for each query, for figures and tables."""


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
    stored: int = MAX_STORED_RESULTS,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, as the protocol defines them; rows of the query's group are excluded.

    If several processes work together, each ranks a share of the queries.

    Args:
        wanted: number of results that the metrics need.
        budget: memory for the ranking, in bytes.
        exclude: pairs of rows of the data that are not results of each other.
        stored: number of results of each query in the ranking that is returned.
    """
    is_query, in_gallery = (torch.as_tensor(side) for side in protocol.query_gallery(items, e.row.numpy()))
    if not is_query.any() or not in_gallery.any():
        raise LikewiseError(
            f"{type(protocol).__name__}: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
            f"got {int(is_query.sum())} and {int(in_gallery.sum())}; check the columns `query`, `gallery` and `split`"
        )
    group = None if items.group is None else torch.as_tensor(items.group)[e.row]
    how = {
        "k": stored, "depth": wanted.k, "all_hits": wanted.all_hits, "similarity": similarity, "device": device,
        "budget": budget, "progress": progress,
    }  # fmt: skip
    pairs = None if exclude is None else _positions(exclude, e, items)
    if is_query.all() and in_gallery.all() and world()[1] == 1:
        return rank(e.z, e.y, group=group, exclude=pairs, **how)
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
            z[mine], e.y[q[mine]], gallery_z, e.y[g], own=in_g[q[mine]],
            group=None if group is None else group[q[mine]], gallery_group=None if group is None else group[g],
            exclude=None if own is None else own - torch.tensor([mine.start, 0]), **how,
        )  # fmt: skip

    found = rank_in_shares(len(q), rank_some)
    g = g.to(found.row.device)
    row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
    return dataclasses.replace(found, query=q.to(g.device), row=row)


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
    stored: int = MAX_STORED_RESULTS,
) -> tuple[Scores, Retrieval | None]:
    """Return every metric per query, and the ranking; no scores and None if all metrics are of the whole set."""
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
    with bar("rank", 100, quiet=quiet) as shown:
        found = retrieve(
            e, items, protocol, wanted, similarity=similarity, device=_with_float64(device), budget=budget, exclude=exclude,
            stored=stored, progress=shown.reach,
        )  # fmt: skip
    each = {name: m(found).cpu().numpy() for name, m in chosen.items()}
    found = Retrieval(**{f.name: getattr(found, f.name).cpu() for f in dataclasses.fields(found)})
    return Scores(each, e.row[found.query].numpy(), e.y[found.query].numpy()), found


def _with_float64(device: torch.device) -> torch.device:
    """Return the device, or the CPU if the device has no float64, which exact ranking needs."""
    return torch.device("cpu") if device.type == "mps" else device


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

    Means are over the queries with a relevant gallery row; "unscored" is the number of the other queries.
    """
    lonely = np.isnan(next(iter(scores.each.values()), np.zeros(0)))
    if scores.each and lonely.all():
        raise LikewiseError(
            f"evaluate: none of the {len(lonely)} queries has a relevant gallery row: every class has one image, the others are "
            "excluded, or the gallery has none of the queries' classes; add at least two images of a class"
        )
    if scores.each and len(e.y.unique()) == 1:
        raise LikewiseError(
            f"evaluate: there must be two classes or more, but all {len(e.y)} rows are of one class, so every result would be "
            "right; add classes"
        )
    value, sure = {}, {}
    if scores.each:
        each = np.stack(list(scores.each.values()), 1)
        _, number, count = np.unique(scores.label[~lonely], return_inverse=True, return_counts=True)
        over_classes = len(count) >= MIN_INTERVAL_UNITS
        drawn = bootstrap(each, scores.label if over_classes else None)
        ends = (
            np.stack([drawn.low, drawn.high], 1).tolist() if len(number) >= MIN_INTERVAL_UNITS else []
        )  # too few for a bootstrap
        by_class = [(np.bincount(number, column) / count).mean() for column in each[~lonely].T]
        value = dict(zip(scores.each, np.nanmean(each, 0).tolist()))
        sure = {
            "interval": dict(zip(scores.each, ends)),
            "interval_over": "classes" if over_classes else "queries",
            "class_mean": dict(zip(scores.each, map(float, by_class))),
        }
    whole = [name for name in metrics if is_set_metric(name)]
    if whole:
        device = _with_float64(device)
        value |= measure_set(whole, e.z.to(device), e.y.to(device))
    return {
        "metrics": {name: value[name] for name in metrics},
        **sure,
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": similarity,
    }


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
    """Return the content of scores.json, the scores per query and the ranking. Named galleries are also scored separately."""
    how = {"budget": budget, "exclude": exclude}
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet, stored=stored, **how)
    result = summary(scores, e, similarity, metrics, device)
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
    return result, scores, found
