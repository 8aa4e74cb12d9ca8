"""Which queries a page shows: the best and worst answered, some at random, one of each class, those that changed most."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.records import Answer, Asked

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


def ask(
    place: int, value: float, label: Int[np.ndarray, "N"], near: Int[np.ndarray, "N K"], sim: Float[np.ndarray, "N K"]
) -> Asked:
    """A query with its first answers."""
    each = zip(near[place].tolist(), sim[place].tolist())
    return Asked(place, value, tuple(Answer(p, s, bool(label[p] == label[place])) for p, s in each if p >= 0))


def changed_most(old: Float[np.ndarray, "Q"], new: Float[np.ndarray, "Q"], top: int) -> Int[np.ndarray, "c"]:
    """Queries that changed most, first those that changed by most: half of them gains and half losses, as far as there are
    so many, so that neither side is picked for its best."""
    gain = np.nan_to_num(new - old)
    order = np.argsort(-np.abs(gain), kind="stable")
    up, down = order[gain[order] > 1e-12], order[gain[order] < -1e-12]
    half = top // 2
    some = max(top - half, top - len(down)), max(half, top - len(up))
    both = np.concatenate([up[: some[0]], down[: some[1]]])
    return both[np.argsort(-np.abs(gain[both]), kind="stable")]


def worth_a_picture(label: Int[np.ndarray, "N"], first: list[int], most: int, seed: int = 0) -> Int[np.ndarray, "p"]:
    """Which places get a picture: those that are shown anyway, in their order, then others spread over the classes."""
    drawn = np.random.default_rng(seed).permutation(len(label))
    by_class = drawn[np.argsort(label[drawn], kind="stable")]
    turn = np.arange(len(label)) - np.searchsorted(label[by_class], label[by_class])  # first, second, ... of its class
    spread = by_class[np.argsort(turn, kind="stable")]
    both = np.concatenate([np.array(first, np.int64), spread])
    return both[np.sort(np.unique(both, return_index=True)[1])][:most]
