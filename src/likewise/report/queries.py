"""Queries of a pool with their nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from likewise.report.records import Neighbour, PairRelevance, RankedQuery


def ranked_query(
    place: int,
    value: float,
    label: Int[np.ndarray, "N"],
    near: Int[np.ndarray, "N K"],
    sim: Float[np.ndarray, "N K"],
    relevance: PairRelevance | None = None,
    label_sets: Sequence[Sequence[int]] | None = None,
) -> RankedQuery:
    """Return the query at a place with its value of the main metric and its nearest neighbours.

    Args:
        relevance: relevance of a class to other classes; None: a neighbour is right or wrong.
        label_sets: label numbers of every class, if samples have several: a neighbour that shares a label is right.
    """
    known = near[place] >= 0
    others, sims = near[place][known].tolist(), sim[place][known].tolist()
    values = [None] * len(others) if relevance is None else relevance(int(label[place]), label[others]).tolist()
    values = [None if v is None or np.isnan(v) else v for v in values]
    right = [label[p] == label[place] for p in others]
    if label_sets is not None:
        own = set(label_sets[int(label[place])])
        right = [not own.isdisjoint(label_sets[int(label[p])]) for p in others]
    each = zip(others, sims, right, values, strict=True)
    return RankedQuery(place, value, tuple(Neighbour(p, s, bool(r), v) for p, s, r, v in each))


def query_as_list(one: RankedQuery) -> list:
    """Return a query as the scripts read it: place, value, and [place, similarity, 1 if it is right] per neighbour.

    A neighbour with a relevance has it as a fourth entry.
    """
    return [one.place, one.value, [neighbour_as_list(near) for near in one.neighbours]]


def neighbour_as_list(near: Neighbour) -> list:
    graded = [] if near.relevance is None else [round(near.relevance, 4)]
    return [near.place, near.similarity, int(near.right), *graded]


def places_of(rows: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
    """Return the index in `all_rows` of each of `rows`; -1 for a row that is not among them."""
    order = np.argsort(all_rows, kind="stable")
    at = np.searchsorted(all_rows, rows, sorter=order).clip(max=len(all_rows) - 1)
    return np.where(all_rows[order[at]] == rows, order[at], -1)
