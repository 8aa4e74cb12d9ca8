"""Section "Galleries": queries with their answers, the best and worst answered, some at random, and one of each class."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.queries import ask, asked_list
from likewise.report.records import Asked
from likewise.report.section import Packing, Section, Study

CLASSES = 400
"""Classes of which one query is shown, at most."""


def galleries(
    query: Int[np.ndarray, "Q"],
    value: Float[np.ndarray, "Q"],
    label: Int[np.ndarray, "N"],
    near: Int[np.ndarray, "N K"],
    sim: Float[np.ndarray, "N K"],
    top: int,
    seed: int = 0,
) -> dict[str, tuple[Asked, ...]]:
    """Queries by how well they were answered. Those with nothing to find are left out.

    Args:
        query: their places.
        value: of the metric that decides, NaN where there is nothing to find.
        near: places of the nearest of every sample, -1: none.
        top: queries in each gallery, but for that of classes.
    """
    known = ~np.isnan(value)
    query, value, rng = query[known], value[known], np.random.default_rng(seed)
    if not len(query) or not near.shape[1]:
        return {}
    drawn = rng.permutation(len(query))  # equals stand in no order
    surest = np.nan_to_num(sim[query, 0], nan=-np.inf)
    picked = {
        "worst": np.lexsort((drawn, -surest, value))[:top],  # among equals, those that were surest
        "best": np.lexsort((drawn, -value))[:top],
        "random": np.argsort(drawn)[:top],
        "each class": one_a_class(label[query], value, rng),
    }
    return {
        name: tuple(ask(int(query[q]), float(value[q]), label, near, sim) for q in some)
        for name, some in picked.items()
        if len(some)
    }


def one_a_class(
    label: Int[np.ndarray, "Q"], value: Float[np.ndarray, "Q"], rng: np.random.Generator, most: int = CLASSES
) -> Int[np.ndarray, "c"]:
    """The query of every class that half of its queries are better than; of some classes at random, where they are many."""
    order = np.lexsort((value, label))
    _, first, count = np.unique(label[order], return_index=True, return_counts=True)
    middle = order[first + (count - 1) // 2]
    return middle if len(middle) <= most else middle[np.sort(rng.choice(len(middle), most, replace=False))]


def of_run(study: Study) -> dict[str, tuple[Asked, ...]]:
    if study.queries is None or study.pool is None or study.near is None or study.near_sim is None:
        return {}
    config = study.config
    return galleries(*study.queries, study.pool.label, study.near, study.near_sim, config.top, config.seed)


def pack(found: dict[str, tuple[Asked, ...]], packing: Packing) -> dict[str, list]:
    return {name: list(map(asked_list, some)) for name, some in found.items() if some}


SECTION = Section(
    "galleries",
    "Galleries",
    "Queries and their answers",
    "Query first, then its nearest samples, framed by whether they are of its class.",
    of_run=of_run,
    pack=pack,
)
