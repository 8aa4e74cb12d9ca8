"""Bars with and without regularisation: order, partners, printed values and gains."""

import csv
from types import SimpleNamespace

from likewise.papers.figures import regularised_bars as module
from likewise.papers.figures.regularised_bars import draw

ROWS = {
    "Plain": [(0.5, 0.0), (0.5, 0.0)],
    "Triplet (D)": [(0.60, 0.0), (0.62, 0.0)],
    "R-Triplet": [(0.57, 0.0), (0.58, 0.0)],
    "R-Alone": [(0.4, 0.0), (0.4, 0.0)],
}


def test_the_best_method_is_first_and_its_regularised_partner_follows(made, monkeypatch):
    drawn = []
    real = module.draw_bars
    monkeypatch.setattr(module, "draw_bars", lambda bars, *rest: drawn.extend(bars) or real(bars, *rest))
    printed = {"R-Triplet": SimpleNamespace(mean=60.1, spread=0.3), "Plain": SimpleNamespace(mean=51.0, spread=None)}
    given = made(ROWS, printed=printed)
    sheet = given[1]
    png, notes = draw(*given)
    assert png and [bar.name for bar in drawn] == ["Triplet (D)", "R-Triplet", "Plain", "R-Alone"]
    assert [bar.is_regularised for bar in drawn] == [False, True, False, False]
    assert [bar.printed for bar in drawn] == [None, (60.1, 0.3), (51.0, None), None]
    assert notes == [
        "R@1 with rho-regularisation minus without, in points: Triplet (D) −3.5. The table has the tests of the differences."
    ]
    with (sheet.folder / "regularised_bars.csv").open(encoding="utf-8") as lines:
        found = {line["method"]: line for line in csv.DictReader(lines)}
    assert float(found["Triplet (D)"]["R@1"]) == 61 and found["R-Triplet"]["printed_std"] == "0.3"


def test_a_table_without_pairs_says_so(made):
    _, notes = draw(*made({"a": [(0.5, 0.1)], "b": [(0.5, 0.1)]}))
    assert notes == ["no method of this table has both a row with and a row without rho-regularisation"]
