"""Labels of samples as a matrix."""

import numpy as np
from report.label_facts import small_pool

from likewise.report.label_counts import label_matrix


def test_a_line_per_place_and_a_column_per_label():
    found = label_matrix(small_pool(), np.array([0, 4])).toarray()
    assert found.tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 1, 0]]
