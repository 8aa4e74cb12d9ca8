"""From embeddings to scores: one ranked pass, every metric per query, and what is derived from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Int

from likewise.contracts import Protocol
from likewise.distributed.process_group import rank_in_shares, world
from likewise.evaluation.answers import answers_for, findable
from likewise.io.progress import bar
from likewise.metrics import Reach, measure_set, metric, of_the_set, reach
from likewise.numerics.bootstrap import FEW, bootstrap
from likewise.retrieval.integer_scores import euclidean_scale
from likewise.retrieval.ranking import BUDGET, rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

SHOWN = 10
"""Answers kept per query, for galleries and tables."""


def retrieve(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    wanted: Reach = Reach(1, False),
    *,
    similarity: str = "cosine",
    device: torch.device | None = None,
    budget: int = BUDGET,
    exclude: Int[np.ndarray, "M 2"] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, as the protocol defines them; rows of one group never answer each other.

    Where several processes work together, each ranks a share of the queries.

    Args:
        wanted: how deep the metrics look.
        exclude: pairs of rows of the data that are no answers to each other.
    """
    asks, answers = (torch.as_tensor(side) for side in protocol.query_gallery(items, e.row.numpy()))
    if not asks.any() or not answers.any():
        raise LikewiseError(
            f"{type(protocol).__name__}: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
            f"got {int(asks.sum())} and {int(answers.sum())}; check the columns `query`, `gallery` and `split`"
        )
    group = None if items.group is None else torch.as_tensor(items.group)[e.row]
    how = {
        "k": SHOWN, "depth": wanted.k, "all_hits": wanted.all_hits, "similarity": similarity, "device": device,
        "budget": budget, "progress": progress,
    }  # fmt: skip
    pairs = None if exclude is None else _positions(exclude, e, items)
    if asks.all() and answers.all() and world()[1] == 1:
        return rank(e.z, e.y, group=group, exclude=pairs, **how)
    q, g = asks.nonzero()[:, 0], answers.nonzero()[:, 0]
    z, gallery_z = (e.z if side.all() else e.z[side] for side in (asks, answers))
    how["scale"] = euclidean_scale(z, gallery_z) if similarity == "euclidean" else None  # one for all processes
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
    """Pairs of rows of the data as positions among the embeddings; those with a row that is not there are left out."""
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
    budget: int = BUDGET,
    exclude: Int[np.ndarray, "M 2"] | None = None,
) -> tuple[Scores, Retrieval | None]:
    """Every metric per query for every query, from one ranked pass; none where there is no such metric."""
    if not metrics:
        raise LikewiseError("evaluate: at least one metric is needed; see `likewise list metrics`")
    chosen = {name: metric(name) for name in metrics if not of_the_set(name)}
    if not chosen:
        return Scores({}), None
    wanted, room = reach(chosen), answers_for(*protocol.query_gallery(items, e.row.numpy()))
    if wanted.k > room:
        raise LikewiseError(
            f"evaluate: the metrics look at {wanted.k} answers, but there are at most {room} for a query here; ask for a "
            "smaller k with --metrics"
        )
    with bar("rank", 100, quiet=quiet) as shown:
        found = retrieve(
            e, items, protocol, wanted, similarity=similarity, device=_with_float64(device), budget=budget, exclude=exclude,
            progress=shown.reach,
        )  # fmt: skip
    each = {name: m(found).cpu().numpy() for name, m in chosen.items()}
    found = Retrieval(**{f.name: getattr(found, f.name).cpu() for f in dataclasses.fields(found)})
    return Scores(each, e.row[found.query].numpy(), e.y[found.query].numpy()), found


def _with_float64(device: torch.device) -> torch.device:
    """This device, or the CPU where it lacks the numbers that exact ranking needs."""
    return torch.device("cpu") if device.type == "mps" else device


def as_compared(e: Embedded, similarity: str) -> Embedded:
    """The embeddings to compare: of unit length, or raw ones for distances."""
    return e if similarity == "cosine" else dataclasses.replace(e, z=e.e)


def mean_score(
    e: Embedded, items: Items, protocol: Protocol, name: str, similarity: str, device: torch.device
) -> float:
    """One metric's mean: what validation asks for."""
    scores, _ = score(as_compared(e, similarity), items, protocol, [name], similarity, device, quiet=True)
    value = scores.each[name]
    if np.isnan(value).all():
        raise LikewiseError("train: no validation sample has a class mate to find; hold out more classes (val)")
    return float(np.nanmean(value))


def summary(scores: Scores, e: Embedded, similarity: str, metrics: Sequence[str], device: torch.device) -> dict:
    """Means over the queries that have something to find with their 95 % intervals, means over classes, how many queries
    have nothing to find, and the numbers of the whole set."""
    lonely = np.isnan(next(iter(scores.each.values()), np.zeros(0)))
    if scores.each and lonely.all():
        raise LikewiseError(
            f"evaluate: none of the {len(lonely)} queries has anything to find: every class has one image, its others are "
            "excluded, or no gallery row is of a query's class; bring at least two images of a class"
        )
    if scores.each and len(e.y.unique()) == 1:
        raise LikewiseError(
            f"evaluate: all {len(e.y)} rows are of one class, so every answer would be right; bring two classes or more"
        )
    value, sure = {}, {}
    if scores.each:
        each = np.stack(list(scores.each.values()), 1)
        _, number, count = np.unique(scores.label[~lonely], return_inverse=True, return_counts=True)
        over_classes = len(count) >= FEW
        drawn = bootstrap(each, scores.label if over_classes else None)
        ends = np.stack([drawn.low, drawn.high], 1).tolist() if len(number) >= FEW else []  # too few to redraw
        by_class = [(np.bincount(number, column) / count).mean() for column in each[~lonely].T]
        value = dict(zip(scores.each, np.nanmean(each, 0).tolist()))
        sure = {
            "interval": dict(zip(scores.each, ends)),
            "interval_over": "classes" if over_classes else "queries",
            "class_mean": dict(zip(scores.each, map(float, by_class))),
        }
    whole = [name for name in metrics if of_the_set(name)]
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
    budget: int = BUDGET,
    exclude: Int[np.ndarray, "M 2"] | None = None,
) -> tuple[dict, Scores, Retrieval | None]:
    """Return the content of scores.json, the scores of every query and the ranking. Named galleries are also scored alone."""
    how = {"budget": budget, "exclude": exclude}
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet, **how)
    result = summary(scores, e, similarity, metrics, device)
    names = protocol.galleries(items, e.row.numpy())
    if found is not None and len(names) > 1:
        asked = [name for name in metrics if not of_the_set(name)]
        alone = {}
        for name in names:
            one = protocol.only(name)
            room = answers_for(*one.query_gallery(items, e.row.numpy()))
            fit = [m for m in asked if reach([m]).k <= room]  # a small gallery has no answer number 10
            if not fit or not findable(items, one, e.row.numpy()).any():
                alone[name] = {"metrics": {}, "queries": 0, "unscored": len(found.query)}
                continue
            some, _ = score(e, items, one, fit, similarity, device, quiet, **how)
            alone[name] = summary(some, e, similarity, fit, device)
        result["galleries"] = alone
    return result, scores, found
