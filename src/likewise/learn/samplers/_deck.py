"""Draw entries without replacement from a list that is shuffled again whenever it is used up."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


def deal(pack: list[int], everyone: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Remove and return the next `count` entries of a shuffled list; add a new shuffled copy behind them when it is too short.

    The next entry is the last of the list, so that a draw does not move the others. The entries that are still in the list come
    last in the new copy, so that they do not repeat at once.
    """
    while len(pack) < count:
        left, fresh = set(pack), rng.permutation(everyone).tolist()
        pack[:0] = reversed([v for v in fresh if v not in left] + [v for v in fresh if v in left])
    return [pack.pop() for _ in range(count)]


def some(rows: Int[np.ndarray, "n"], count: int, rng: np.random.Generator) -> list[int]:
    """Return about `count` different random rows in random order; all rows if there are few. Does not shuffle a long list."""
    if len(rows) <= 4 * count:
        return rng.permutation(rows)[:count].tolist()
    return list(dict.fromkeys(rows[rng.integers(len(rows), size=count)].tolist()))
