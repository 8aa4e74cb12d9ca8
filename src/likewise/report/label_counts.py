"""Labels of the samples of a pool as a sparse matrix, if samples have several labels each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from likewise.report.records import Pool


def label_matrix(pool: Pool, place: Int[np.ndarray, "n"]) -> csr_matrix:
    """Return a matrix with a line per place and a column per label: 1 if the sample has the label."""
    assert pool.label_sets is not None and pool.label_name is not None
    sets = [pool.label_sets[one] for one in pool.label[place].tolist()]
    start = np.concatenate([[0], np.cumsum([len(one) for one in sets], dtype=np.int64)])
    column = np.array([name for one in sets for name in one], np.int64)
    return csr_matrix((np.ones(len(column), np.int64), column, start), shape=(len(sets), len(pool.label_name)))
