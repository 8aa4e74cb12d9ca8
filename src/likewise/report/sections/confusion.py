"""Section "Confusions": queries whose nearest neighbour has another label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from likewise.report.section import Facts, Packing, Pool, Section, Study, of_drawn
from likewise.report.sections.labels import label_matrix
from likewise.report.sections.tree import class_means, leaves

MAX_CONFUSED_PAIRS, MAX_CONFUSION_CLASSES = 60, 40
"""Largest number of pairs in the list, and of classes in the matrix."""

MAX_EXAMPLE_IMAGES = 3
"""Largest number of images of each class that illustrate a confusion."""


class Confused(NamedTuple):
    """Queries of class `a` whose nearest neighbour is of class `b`: their number, and their share of the queries of `a`."""

    a: int
    b: int
    count: int
    share: float
    example: tuple[int, int] | None = None  # places of one such query and of its neighbour


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusions between classes. `matrix[i, j]`: share of queries of `classes[i]` with a nearest neighbour of `classes[j]`.

    `classes` are the classes with the most confusions; similar classes are side by side.
    """

    pairs: tuple[Confused, ...]  # the worst first
    classes: Int[np.ndarray, "M"]
    matrix: Float[np.ndarray, "M M"]


def count_confusions(
    query: Int[np.ndarray, "Q"],
    first: Int[np.ndarray, "Q"],
    label: Int[np.ndarray, "N"],
    mean: Float[np.ndarray, "C D"] | None = None,
    *,
    pairs: int = MAX_CONFUSED_PAIRS,
    classes: int = MAX_CONFUSION_CLASSES,
) -> Confusion | None:
    """Count the confusions between classes; return None if there are none.

    Args:
        query: places of the queries.
        first: place of the nearest neighbour of each query; -1: none.
        mean: mean embedding of every class, which orders similar classes side by side; None: order by class number.
        pairs: largest number of pairs; pairs with the most queries come first, ties are ordered by their share of the class.
        classes: largest number of classes in the matrix; these are the classes of the first pairs.
    """
    query, first = query[first >= 0], first[first >= 0]
    a, b, c = label[query], label[first], int(label.max()) + 1
    queries = np.bincount(a, minlength=c)
    wrong = np.flatnonzero(a != b)
    if not len(wrong):
        return None
    code, example, count = np.unique(a[wrong] * c + b[wrong], return_index=True, return_counts=True)
    share = count / queries[code // c]
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
    in_matrix = (place[a] >= 0) & (place[b] >= 0)
    matrix = np.zeros((len(shown), len(shown)))
    np.add.at(matrix, (place[a[in_matrix]], place[b[in_matrix]]), 1)
    return Confusion(found, shown, matrix / np.maximum(queries[shown], 1)[:, None])


def of_run(study: Study) -> Confusion | None:
    if study.queries is None or study.pool is None or study.near is None:
        return None
    place, value = study.queries
    scored = place[~np.isnan(value)]  # NaN: no relevant rows
    if study.pool.label_sets is not None:
        counted = count_label_confusions(
            scored, study.near[scored, 0], study.pool, MAX_CONFUSED_PAIRS, MAX_CONFUSION_CLASSES
        )
        return counted and Confusion(tuple(map(Confused._make, counted[0])), *counted[1:])
    label, classes = study.pool.label, len(study.pool.class_name)
    mean = None if study.z is None else class_means(study.z, label, classes)
    return count_confusions(scored, study.near[scored, 0], label, mean)


def pack(found: Confusion, packing: Packing) -> dict:
    """Return pairs, classes and matrix; each pair with places of example samples."""
    assert packing.pool is not None and packing.run is not None
    with_image = np.array(list(packing.pool.images), np.int64)
    if packing.pool.label_sets is not None:
        pairs = [[*pair[:4], [[place] for place in pair.example or ()]] for pair in found.pairs]
        return {"pairs": pairs, "classes": found.classes, "matrix": np.round(found.matrix, 4), "labels": True}
    pairs = [[*pair[:4], examples(pair, packing.pool, with_image, packing.run.near)] for pair in found.pairs]
    return {"pairs": pairs, "classes": found.classes, "matrix": np.round(found.matrix, 4)}


def examples(pair: Confused, pool: Pool, with_image: Int[np.ndarray, "P"], near: Int[np.ndarray, "N K"] | None) -> list:
    """Return places of samples of both classes that have an image: confused queries and their neighbours come first."""
    ours, theirs = (with_image[pool.label[with_image] == one] for one in (pair.a, pair.b))
    if near is not None and near.shape[1] and len(ours):
        first = near[ours, 0]
        confused = (first >= 0) & (pool.label[first] == pair.b)
        ours = np.concatenate([ours[confused], ours[~confused]])
        theirs = np.concatenate([first[confused][np.isin(first[confused], with_image)], theirs])
    known = [[one] for one in pair.example] if pair.example else [[], []]
    both = zip(known, (ours, theirs), strict=True)
    return [list(dict.fromkeys([*one, *some.tolist()]))[:MAX_EXAMPLE_IMAGES] for one, some in both]


def words(facts: Facts) -> tuple[str, str] | None:
    """Return title and introduction about labels if samples have several, or about a sample of queries, otherwise None."""
    if not any(pool.label_sets for pool in facts.pools):
        intro = of_drawn(SECTION.intro, facts)
        return None if intro == SECTION.intro else (SECTION.title, intro)
    intro = "Queries whose nearest neighbour lacks one of their labels and has another in its place, more often than by chance."
    return "Confused labels", of_drawn(intro, facts)


def count_label_confusions(
    query: Int[np.ndarray, "Q"], first: Int[np.ndarray, "Q"], pool: Pool, most_pairs: int, most_labels: int
) -> tuple[list[tuple], Int[np.ndarray, "M"], Float[np.ndarray, "M M"]] | None:
    """Count the queries with label a, without b, whose nearest neighbour has b and not a; return None if there are none.

    Pairs are ordered by how far their count exceeds the one expected if a label that gets lost had nothing to do with the one
    that comes in its place; pairs below that are left out: "serif" is lost for "sans", and not for the frequent label "bold".

    Args:
        query: places of the queries.
        first: place of the nearest neighbour of each query; -1: none.

    Returns:
        The fields of `Confused` for every pair, the labels of the matrix, and the matrix: the share of the queries with a whose
        neighbour has b in its place, on the diagonal the share whose neighbour has a too.
    """
    query, first = query[first >= 0], first[first >= 0]
    ours, theirs = (label_matrix(pool, place) for place in (query, first))
    both = ours.multiply(theirs).tocsr()
    lost, gained = ours - both, theirs - both
    counts = (lost.T @ gained).tocoo()
    size, left, came = (np.asarray(one.sum(0)).ravel() for one in (ours, lost, gained))
    excess = counts.data - left[counts.row] * came[counts.col] / max(1, len(query))
    order = np.lexsort((counts.col, counts.row, -excess))
    order = order[excess[order] > 0]
    if not len(order):
        return None
    pairs = []
    for i in order[:most_pairs]:
        a, b, many = int(counts.row[i]), int(counts.col[i]), int(counts.data[i])
        pairs.append((a, b, many, float(many / size[a]), example(lost, gained, a, b, query, first)))
    named = np.stack([counts.row[order], counts.col[order]], 1).ravel()
    shown = np.sort(named[np.sort(np.unique(named, return_index=True)[1])][:most_labels]).astype(np.int64)
    matrix = counts.tocsr()[shown][:, shown].toarray() + np.diag(np.asarray(both.sum(0)).ravel()[shown])
    return pairs, shown, matrix / np.maximum(size[shown], 1)[:, None]


def example(
    lost: csr_matrix, gained: csr_matrix, a: int, b: int, query: Int[np.ndarray, "Q"], first: Int[np.ndarray, "Q"]
) -> tuple[int, int]:
    """Return the places of a query that lost label a for label b, and of its neighbour."""
    at = int(np.flatnonzero(lost[:, [a]].multiply(gained[:, [b]]).toarray())[0])
    return int(query[at]), int(first[at])


SECTION = Section(
    "confusion",
    "Confusions",
    "Confused classes",
    "Queries whose nearest neighbour has another label.",
    of_run=of_run,
    pack=pack,
    words=words,
)
