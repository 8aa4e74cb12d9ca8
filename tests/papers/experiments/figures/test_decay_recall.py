"""Spectral decay against the score: points, correlation and the effect of regularisation."""

import csv

from likewise.papers.figures import decay_recall as module
from likewise.papers.figures.decay_recall import draw

ROWS = {
    "A (D)": [(0.40, 0.9), (0.42, 0.9)],
    "R-A": [(0.50, 0.6), (0.52, 0.6)],
    "B (D)": [(0.45, 0.5), (0.45, 0.5)],
    "R-B": [(0.43, 0.4), (0.43, 0.4)],
    "C": [(0.60, 0.3), (0.60, 0.3)],
}


def test_one_point_per_method_with_its_correlation(made, monkeypatch):
    drawn = []
    real = module.draw_decay
    monkeypatch.setattr(module, "draw_decay", lambda points, *rest: drawn.extend(points) or real(points, *rest))
    given = made(ROWS)
    png, notes = draw(*given)
    assert png and [(p.name, p.partner) for p in drawn] == [
        ("A (D)", None), ("R-A", "A (D)"), ("B (D)", None), ("R-B", "B (D)"), ("C", None),
    ]  # fmt: skip
    # ranks of rho 5 4 3 2 1, of R@1 1 4 3 2 5: squares 16 + 0 + 0 + 0 + 16 = 32, 1 - 6 * 32 / 120 = -0.6
    assert "Spearman −0.60 (" in notes[0] and notes[0].endswith("5 methods.")
    assert notes[1] == (
        "With rho-regularisation rho is lower for 2 of 2 methods, and at the same time R@1 higher for 1 (the paper: for each)."
    )
    assert "too narrow" in notes[2]
    with (given[1].folder / "decay_recall.csv").open(encoding="utf-8") as lines:
        found = {line["method"]: line for line in csv.DictReader(lines)}
    assert float(found["R-A"]["rho"]) == 0.6 and found["R-A"]["regularised"] == "yes" and found["C"]["seeds"] == "2"
