"""The study of mixup: rows with and without it under one name, and the direction of both effects."""

import csv

import pytest

from likewise.papers.figures import mixup as module
from likewise.papers.figures.mixup import draw

ROWS = {
    "A": [(0.60, 0.3), (0.62, 0.3)],
    "A + mixup": [(0.55, 0.4), (0.57, 0.4)],
    "B": [(0.50, 0.5), (0.50, 0.5)],
    "B + mixup": [(0.52, 0.6), (0.52, 0.6)],
}


def test_every_method_is_beside_itself_with_mixup(made, monkeypatch):
    drawn = []
    real = module.draw_mixup
    monkeypatch.setattr(module, "draw_mixup", lambda records, *rest: drawn.extend(records) or real(records, *rest))
    given = made(ROWS, **{name: {"mixup": 2.0} for name in ROWS if "mixup" in name})
    png, notes = draw(*given)
    assert png and [(r.method, r.is_mixed) for r in drawn] == [("A", False), ("A", True), ("B", False), ("B", True)]
    assert [r.score.mean for r in drawn] == pytest.approx([61, 56, 50, 52])
    assert "A: R@1 61.0 ± 1.4 and 56.0 ± 1.4, rho 0.300 ± 0.000 and 0.400 ± 0.000; B: " in notes[0]
    assert "R@1 is lower for 1 of 2 methods (the paper: for all), and rho is higher" in notes[1]
    assert "the spectrum decays more, for 2." in notes[1]
    with (given[1].folder / "mixup.csv").open(encoding="utf-8") as lines:
        found = list(csv.DictReader(lines))
    assert len(found) == 4 * (2 + 3 + 3)
    assert {line["value"] for line in found} == {"R@1", "rho", "singular value", "class singular value"}
