"""Groups of trainings over seeds, and pairs with and without regularisation."""

import pytest

from likewise.papers.figures.seed_groups import partners, seed_groups


def test_a_group_has_the_seeds_of_a_cell_and_its_score_in_per_cent(made):
    grid, sheet, done, _ = made({"a": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.25, 0.3)]})
    metric, (a, b) = seed_groups(grid, sheet, done)
    assert metric == "R@1" and (a.row, len(a.runs)) == ("a", 2) and b.names == {"method": "b", "seed": "0"}
    assert a.score == (pytest.approx(55), pytest.approx(50**0.5), 2)  # deviations of 5: (25 + 25) / 1
    assert b.score.mean == pytest.approx(25)


def test_a_regularised_row_belongs_to_the_row_with_distance_weighted_mining():
    rows = ["Triplet (R)", "Triplet (D)", "Contrastive", "R-Triplet", "R-Contrastive", "R-SNR", "Rank"]
    assert partners(rows) == {"Triplet (D)": "R-Triplet", "Contrastive": "R-Contrastive"}
