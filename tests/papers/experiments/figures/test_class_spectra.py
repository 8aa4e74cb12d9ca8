"""Class spectra: a panel per pair, the mean over seeds, and how much the largest value shrinks."""

import csv

import pytest

from likewise.papers.figures import spectra as module
from likewise.papers.figures.spectra import draw


def test_pairs_are_drawn_and_other_rows_are_not(made, monkeypatch):
    drawn = []
    real = module.draw_spectra
    monkeypatch.setattr(module, "draw_spectra", lambda lines, *rest: drawn.extend(lines) or real(lines, *rest))
    rows = {name: [(0.5, 0.1), (0.5, 0.1)] for name in ("A (D)", "R-A", "Other")}
    given = made(rows, spectra={"A (D)": [0.7, 0.2, 0.1], "R-A": [0.4, 0.35, 0.25]})
    png, notes = draw(*given)
    assert png and [(line.panel, line.name) for line in drawn] == [
        ("A (D)", "without"),
        ("A (D)", "with rho-regularisation"),
    ]
    assert list(drawn[1].values) == pytest.approx([0.4, 0.35, 0.25])
    assert "A (D) 70.0 and 40.0. It is smaller with regularisation for 1 of 1 methods" in notes[0]
    with (given[1].folder / "class_spectra.csv").open(encoding="utf-8") as lines:
        assert [line["rank"] for line in csv.DictReader(lines)] == ["1", "2", "3"] * 2


def test_without_a_pair_there_is_no_figure(made):
    assert draw(*made({"A": [(0.5, 0.1)]})) == (
        None, ["no class spectra: no method has rows with and without rho-regularisation"],
    )  # fmt: skip
