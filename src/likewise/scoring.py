"""From embeddings to scores: one ranked pass, every metric per query, and what is derived from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch

from likewise.contracts import Protocol
from likewise.metrics.ranking import largest_k, metric
from likewise.metrics.spectrum import of_the_set, set_metric
from likewise.progress import bar
from likewise.search import rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

SHOWN = 10
"""Answers kept per query, for galleries and tables."""


def retrieve(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    k: int = 10,
    similarity: str = "cosine",
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank those who may answer for each who asks, as the protocol says; rows of one group never answer each other."""
    device = e.row.device
    asks, answers = (torch.as_tensor(side).to(device) for side in protocol.sides(items, e.row.cpu().numpy()))
    group = None if items.group is None else torch.as_tensor(items.group).to(device)[e.row]
    if asks.all() and answers.all():
        return rank(e.z, e.y, k=k, group=group, similarity=similarity, progress=progress)
    if not asks.any() or not answers.any():
        raise LikewiseError(
            f"{type(protocol).__name__}: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
            f"got {int(asks.sum())} and {int(answers.sum())}; check the columns `query`, `gallery` and `split`"
        )
    q, g = asks.nonzero()[:, 0], answers.nonzero()[:, 0]
    place = torch.full((len(e.row),), -1, dtype=torch.int64, device=device)
    place[g] = torch.arange(len(g), device=device)
    found = rank(
        e.z[q], e.y[q], e.z[g], e.y[g], k=k, own=place[q], similarity=similarity, progress=progress,
        group=None if group is None else group[q], gallery_group=None if group is None else group[g],
    )  # fmt: skip
    row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
    return dataclasses.replace(found, query=q, row=row)


def score(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    metrics: Sequence[str],
    similarity: str,
    device: torch.device,
    quiet: bool = False,
) -> tuple[Scores, Retrieval | None]:
    """Every metric per query for every query, from one ranked pass; none where there is no such metric."""
    if not metrics:
        raise LikewiseError("evaluate: at least one metric is needed; see `likewise list metrics`")
    chosen = {name: metric(name) for name in metrics if not of_the_set(name)}
    if not chosen:
        return Scores({}), None
    if device.type == "mps":  # it has no float64, which exact ranking needs
        device = torch.device("cpu")
    moved = Embedded(e.z.to(device), e.y.to(device), e.row.to(device))
    with bar("rank", 100, quiet=quiet) as shown:
        found = retrieve(
            moved, items, protocol, k=max(SHOWN, largest_k(metrics)), similarity=similarity,
            progress=lambda share: shown.advance(round(100 * share) - shown.done),
        )  # fmt: skip
    found = Retrieval(**{f.name: getattr(found, f.name).cpu() for f in dataclasses.fields(found)})
    most = int((found.row >= 0).sum(1).max())
    if largest_k(metrics) > most:
        raise LikewiseError(
            f"evaluate: the metrics look at {largest_k(metrics)} answers, but there are at most "
            f"{most} for a query in this gallery of {len(e.row)} rows; ask for a smaller k with --metrics"
        )
    each = {name: m(found).numpy() for name, m in chosen.items()}
    return Scores(each, e.row[found.query].numpy()), found


def mean_score(
    e: Embedded, items: Items, protocol: Protocol, name: str, similarity: str, device: torch.device
) -> float:
    """One metric's mean: what validation asks for."""
    e = e if similarity == "cosine" else dataclasses.replace(e, z=e.e)
    scores, _ = score(e, items, protocol, [name], similarity, device, quiet=True)
    value = scores.each[name]
    if np.isnan(value).all():
        raise LikewiseError("train: no validation sample has a class mate to find; hold out more classes (val)")
    return float(np.nanmean(value))


def summary(scores: Scores, e: Embedded, similarity: str, metrics: Sequence[str]) -> dict:
    """Means over the queries that have something to find, how many have not, and the numbers of the whole set."""
    lonely = np.isnan(next(iter(scores.each.values()), np.zeros(0)))
    if scores.each and lonely.all():
        raise LikewiseError(
            f"evaluate: none of the {len(lonely)} queries has anything to find: every class has one image, or its others "
            "are excluded by group; bring at least two images of a class"
        )
    if scores.each and len(e.y.unique()) == 1:
        raise LikewiseError(
            f"evaluate: all {len(e.y)} rows are of one class, so every answer would be right; bring two classes or more"
        )
    value = {name: float(np.nanmean(each)) for name, each in scores.each.items()}
    value |= {name: set_metric(name)(e.z, e.y) for name in metrics if of_the_set(name)}
    return {
        "metrics": {name: value[name] for name in metrics},
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": similarity,
    }
