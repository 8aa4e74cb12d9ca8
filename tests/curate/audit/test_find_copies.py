"""Copies of an audit: the lowest row of exact copies."""

from dataclasses import replace

import numpy as np

from likewise.curate.audit.find_copies import Copies
from likewise.curate.audit.near_duplicates import Duplicates, NearCopies

ROWS = np.arange(10)


def test_lowest_rows_of_exact_copies():
    none = np.zeros(0)
    pairs = Duplicates(none.astype(int), none.astype(int), none, none.astype(int), none.astype(str), none,
                       np.array([0, 1, 0, 2]), NearCopies(np.zeros((0, 2), int), none))  # fmt: skip
    copies = Copies(np.array([9, 4, 3, 5]), np.zeros(4, int), pairs)
    assert copies.first_row() == {9: 3, 3: 3}
    assert Copies(ROWS[:0], ROWS[:0], replace(pairs, cluster=ROWS[:0])).first_row() == {}
