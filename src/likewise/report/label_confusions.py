"""Confusions between single labels, if samples have several labels each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from likewise.report.label_counts import label_matrix
from likewise.report.records import Pool


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
