"""Queries of a pool with their nearest neighbours."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.records import Neighbour, RankedQuery


def ranked_query(
    place: int, value: float, label: Int[np.ndarray, "N"], near: Int[np.ndarray, "N K"], sim: Float[np.ndarray, "N K"]
) -> RankedQuery:
    """Return the query at a place with its value of the main metric and its nearest neighbours."""
    each = zip(near[place].tolist(), sim[place].tolist())
    return RankedQuery(place, value, tuple(Neighbour(p, s, bool(label[p] == label[place])) for p, s in each if p >= 0))


def query_as_list(one: RankedQuery) -> list:
    """Return a query as the scripts read it: place, value, and [place, similarity, 0 or 1 for the same class] per neighbour."""
    return [one.place, one.value, [[near.place, near.similarity, int(near.right)] for near in one.neighbours]]


def places_of(rows: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
    """Return the index in `all_rows` of each of `rows`; -1 for a row that is not among them."""
    order = np.argsort(all_rows, kind="stable")
    at = np.searchsorted(all_rows, rows, sorter=order).clip(max=len(all_rows) - 1)
    return np.where(all_rows[order[at]] == rows, order[at], -1)
