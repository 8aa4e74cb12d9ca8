"""Section "Confusions": queries whose nearest neighbour is of another class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.report.class_tree import class_means, leaves
from likewise.report.records import Pool
from likewise.report.section import Packing, Section, Study

PAIRS, CLASSES = 60, 40
"""How many pairs are listed, and how many classes are drawn, at most."""

EXAMPLES = 3
"""Pictures of each class that stand for a confusion."""


class Confused(NamedTuple):
    """Queries of class `a` whose nearest neighbour is of class `b`: how many, and what share of the class they are."""

    a: int
    b: int
    count: int
    share: float
    example: tuple[int, int] | None = None  # places of one such query and of its answer


@dataclass(frozen=True, eq=False)
class Confusion:
    """Which classes are taken for which. `matrix[i, j]`: share of the queries of `classes[i]` answered by `classes[j]`; the
    classes are those confused most, similar ones side by side."""

    pairs: tuple[Confused, ...]  # the worst first
    classes: Int[np.ndarray, "M"]
    matrix: Float[np.ndarray, "M M"]


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


def of_run(study: Study) -> Confusion | None:
    if study.queries is None or study.pool is None or study.near is None:
        return None
    place, value = study.queries
    found = place[~np.isnan(value)]  # the others have nothing to find
    label, classes = study.pool.label, len(study.pool.class_name)
    mean = None if study.z is None else class_means(study.z, label, classes)
    return confuse(found, study.near[found, 0], label, mean)


def pack(found: Confusion, packing: Packing) -> dict:
    """With queries of each pair and what answered them, those first that have pictures."""
    assert packing.pool is not None and packing.run is not None
    seen = np.array(list(packing.pool.picture), np.int64)
    pairs = [[*pair[:4], examples(pair, packing.pool, seen, packing.run.near)] for pair in found.pairs]
    return {"pairs": pairs, "classes": found.classes, "matrix": np.round(found.matrix, 4)}


def examples(pair: Confused, pool: Pool, seen: Int[np.ndarray, "P"], near: Int[np.ndarray, "N K"] | None) -> list:
    """Samples of both classes, with pictures: first those of one that were answered by the other, and their answers."""
    ours, theirs = (seen[pool.label[seen] == one] for one in (pair.a, pair.b))
    if near is not None and near.shape[1] and len(ours):
        first = near[ours, 0]
        taken = (first >= 0) & (pool.label[first] == pair.b)
        ours = np.concatenate([ours[taken], ours[~taken]])
        theirs = np.concatenate([first[taken][np.isin(first[taken], seen)], theirs])
    known = [[one] for one in pair.example] if pair.example else [[], []]
    both = zip(known, (ours, theirs), strict=True)
    return [list(dict.fromkeys([*one, *some.tolist()]))[:EXAMPLES] for one, some in both]


SECTION = Section(
    "confusion",
    "Confusions",
    "What is taken for what",
    "Queries whose nearest neighbour is of another class.",
    of_run=of_run,
    pack=pack,
)
