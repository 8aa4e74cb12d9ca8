"""Section "Galleries": queries with their nearest neighbours: the worst, the best, random ones and one of each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from likewise.report.section import Facts, Neighbour, Packing, PairRelevance, RankedQuery, Section, Study, of_drawn

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
    relevance: PairRelevance | None = None,
    label_sets: Sequence[Sequence[int]] | None = None,
) -> dict[str, tuple[RankedQuery, ...]]:
    """Return galleries by name: queries ordered by their value. Queries without relevant rows are left out.

    Args:
        query: places of the queries.
        value: main metric of each query; NaN: no relevant rows.
        near: places of the nearest neighbours of every sample; -1: none.
        top: number of queries in each gallery except "each class".
        relevance: relevance of results; None: they are right or wrong.
        label_sets: label numbers of every class; the gallery "each label" then replaces "each class".
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
    }
    if label_sets is None:
        picked["each class"] = median_query_per_class(label[query], value, rng)
    else:
        picked["each label"] = median_query_per_label(label[query], value, label_sets, rng)
    return {
        name: tuple(ranked_query(int(query[q]), float(value[q]), label, near, sim, relevance, label_sets) for q in some)
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


def median_query_per_label(
    label: Int[np.ndarray, "Q"],
    value: Float[np.ndarray, "Q"],
    label_sets: Sequence[Sequence[int]],
    rng: np.random.Generator,
    most: int = MAX_GALLERY_CLASSES,
) -> Int[np.ndarray, "l"]:
    """Return the query with the median value of every single label, each query once; takes the arguments of the one per class."""
    sets = [label_sets[one] for one in label.tolist()]
    place = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    single = np.array([name for one in sets for name in one], np.int64)
    return np.unique(place[median_query_per_class(single, value[place], rng, most)])


def of_run(study: Study) -> dict[str, tuple[RankedQuery, ...]]:
    if study.queries is None or study.pool is None or study.near is None or study.near_sim is None:
        return {}
    config = study.config
    how = {"relevance": study.relevance, "label_sets": study.pool.label_sets}
    return galleries(*study.queries, study.pool.label, study.near, study.near_sim, config.top, config.seed, **how)


def pack(found: dict[str, tuple[RankedQuery, ...]], packing: Packing) -> dict[str, list]:
    return {name: list(map(query_as_list, some)) for name, some in found.items() if some}


def words(facts: Facts) -> tuple[str, str] | None:
    """Return title and introduction if a neighbour has a relevance or the queries are a sample, otherwise None."""
    some = (one for run in facts.runs for gallery in run.found.get("galleries", {}).values() for one in gallery[:1])
    if not any(near.relevance is not None for one in some for near in one.neighbours):
        intro = of_drawn(SECTION.intro, facts)
        return None if intro == SECTION.intro else (SECTION.title, intro)
    intro = "A query and its nearest gallery samples. The bar shows how relevant a neighbour is, from 0 to 1"
    shared = (
        "; labels that it shares with the query are coloured" if any(pool.label_sets for pool in facts.pools) else ""
    )
    return SECTION.title, of_drawn(f"{intro}{shared}.", facts)


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
    neighbours = []
    for near in one.neighbours:
        graded = [] if near.relevance is None else [round(near.relevance, 4)]
        neighbours.append([near.place, near.similarity, int(near.right), *graded])
    return [one.place, one.value, neighbours]


SECTION = Section(
    "galleries",
    "Galleries",
    "Queries and their nearest neighbours",
    "A query and its nearest gallery samples. The frame shows whether a neighbour has the label of the query.",
    words=words,
    of_run=of_run,
    pack=pack,
)
