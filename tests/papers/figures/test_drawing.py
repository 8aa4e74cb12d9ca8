"""What figures of a table share: groups of seeds, rows with and without regularisation, and a note where nothing is drawn."""

import pytest

from likewise.papers.figures import figure_function
from likewise.papers.figures.drawing import partners


def test_a_group_has_the_seeds_of_a_cell_and_its_score_in_per_cent(made):
    table = made({"a": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.25, 0.3)]})
    a, b = table.seed_groups()
    assert table.metric == "R@1" and (a.row, len(a.runs)) == ("a", 2) and b.names == {"method": "b", "seed": "0"}
    assert a.score == (pytest.approx(55), pytest.approx(50**0.5), 2)  # deviations of 5: (25 + 25) / 1
    assert b.score.mean == pytest.approx(25)


def test_a_regularised_row_belongs_to_the_row_with_distance_weighted_mining():
    rows = ["Triplet (R)", "Triplet (D)", "Contrastive", "R-Triplet", "R-Contrastive", "R-SNR", "Rank"]
    assert partners(rows) == {"Triplet (D)": "R-Triplet", "Contrastive": "R-Contrastive"}


@pytest.mark.parametrize(
    ("figure", "note"),
    [
        ("class_spectra", "no class spectra: no method has rows with and without rho-regularisation"),
        ("interval_sweep", "no sweep: no finished training has groups with an interval in steps"),
        ("switch_sweep", "no sweep: the grid needs an axis p_switch, whose names are probabilities"),
        ("regularised_bars", "no method of this table has both a row with and a row without rho-regularisation"),
    ],
)
def test_a_table_without_what_a_figure_shows_says_so(made, figure, note):
    drawn = figure_function(figure)(made({"A": [(0.5, 0.1)], "B": [(0.5, 0.1)]}, A={"loss": "ProxyNCA()"}))
    assert drawn.notes == [note] and (figure == "regularised_bars") == bool(drawn.figure)
