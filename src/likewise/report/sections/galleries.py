"""Section "Galleries": queries with their nearest neighbours: the worst, the best, random ones and one of each class."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.queries import query_as_list, ranked_query
from likewise.report.records import RankedQuery
from likewise.report.section import Packing, Section, Study

MAX_GALLERY_CLASSES = 400
"""Largest number of classes in the gallery "each class"."""


def galleries(
    query: Int[np.ndarray, "Q"],
    value: Float[np.ndarray, "Q"],
    label: Int[np.ndarray, "N"],
    near: Int[np.ndarray, "N K"],
    sim: Float[np.ndarray, "N K"],
    top: int,
    seed: int = 0,
) -> dict[str, tuple[RankedQuery, ...]]:
    """Return galleries by name: queries ordered by their value. Queries without relevant rows are left out.

    Args:
        query: places of the queries.
        value: main metric of each query; NaN: no relevant rows.
        near: places of the nearest neighbours of every sample; -1: none.
        top: number of queries in each gallery except "each class".
    """
    known = ~np.isnan(value)
    query, value, rng = query[known], value[known], np.random.default_rng(seed)
    if not len(query) or not near.shape[1]:
        return {}
    drawn = rng.permutation(len(query))  # random order of ties
    first_sim = np.nan_to_num(sim[query, 0], nan=-np.inf)
    picked = {
        "worst": np.lexsort((drawn, -first_sim, value))[:top],  # ties: most similar neighbour first
        "best": np.lexsort((drawn, -value))[:top],
        "random": np.argsort(drawn)[:top],
        "each class": median_query_per_class(label[query], value, rng),
    }
    return {
        name: tuple(ranked_query(int(query[q]), float(value[q]), label, near, sim) for q in some)
        for name, some in picked.items()
        if len(some)
    }


def median_query_per_class(
    label: Int[np.ndarray, "Q"],
    value: Float[np.ndarray, "Q"],
    rng: np.random.Generator,
    most: int = MAX_GALLERY_CLASSES,
) -> Int[np.ndarray, "c"]:
    """Return the query with the median value of every class; for more than `most` classes, of random classes."""
    order = np.lexsort((value, label))
    _, first, count = np.unique(label[order], return_index=True, return_counts=True)
    middle = order[first + (count - 1) // 2]
    return middle if len(middle) <= most else middle[np.sort(rng.choice(len(middle), most, replace=False))]


def of_run(study: Study) -> dict[str, tuple[RankedQuery, ...]]:
    if study.queries is None or study.pool is None or study.near is None or study.near_sim is None:
        return {}
    config = study.config
    return galleries(*study.queries, study.pool.label, study.near, study.near_sim, config.top, config.seed)


def pack(found: dict[str, tuple[RankedQuery, ...]], packing: Packing) -> dict[str, list]:
    return {name: list(map(query_as_list, some)) for name, some in found.items() if some}


SECTION = Section(
    "galleries",
    "Galleries",
    "Queries and their nearest neighbours",
    "A query and its nearest gallery samples. The frame shows whether a neighbour has the label of the query.",
    of_run=of_run,
    pack=pack,
)
