"""Which classes are taken for which: queries whose nearest neighbour is of another class."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.class_tree import leaves
from likewise.report.records import Confused, Confusion

PAIRS, CLASSES = 60, 40
"""How many pairs are listed, and how many classes are drawn, at most."""


def confuse(
    query: Int[np.ndarray, "Q"],
    first: Int[np.ndarray, "Q"],
    label: Int[np.ndarray, "N"],
    mean: Float[np.ndarray, "C D"] | None = None,
    *,
    pairs: int = PAIRS,
    classes: int = CLASSES,
) -> Confusion | None:
    """Count who is taken for whom; None where nobody is.

    Args:
        query: places of the queries.
        first: place of the nearest answer to each, -1: there is none.
        mean: the mean embedding of every class, by which similar classes are put side by side; None: by their number.
        pairs: list so many at most, those with most queries first; equals by their share of the class.
        classes: draw so many at most, those of the first pairs.
    """
    query, first = query[first >= 0], first[first >= 0]
    a, b, c = label[query], label[first], int(label.max()) + 1
    asked = np.bincount(a, minlength=c)
    wrong = np.flatnonzero(a != b)
    if not len(wrong):
        return None
    code, example, count = np.unique(a[wrong] * c + b[wrong], return_index=True, return_counts=True)
    share = count / asked[code // c]
    order = np.lexsort((code, -share, -count))
    found = tuple(
        Confused(
            int(code[i] // c), int(code[i] % c), int(count[i]), float(share[i]),
            (int(query[wrong[example[i]]]), int(first[wrong[example[i]]])),
        )
        for i in order[:pairs]
    )  # fmt: skip
    both = np.stack([code[order] // c, code[order] % c], 1).ravel()
    shown = both[np.sort(np.unique(both, return_index=True)[1])][:classes]
    shown = np.sort(shown) if mean is None else shown[leaves(mean[shown])]
    place = np.full(c, -1)
    place[shown] = np.arange(len(shown))
    drawn = (place[a] >= 0) & (place[b] >= 0)
    matrix = np.zeros((len(shown), len(shown)))
    np.add.at(matrix, (place[a[drawn]], place[b[drawn]]), 1)
    return Confusion(found, shown, matrix / np.maximum(asked[shown], 1)[:, None])
