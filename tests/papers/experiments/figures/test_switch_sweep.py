"""The sweep of p_switch: its points in order, and its best probability beside training without regularisation."""

import csv

from likewise.papers.figures import switch_sweep as module
from likewise.papers.figures.switch_sweep import draw


def test_points_are_those_of_the_table_and_the_note_names_the_best(made, monkeypatch):
    drawn = []
    real = module.draw_sweep
    monkeypatch.setattr(
        module, "draw_sweep", lambda points, *rest: drawn.append((points, *rest)) or real(points, *rest)
    )
    rows = {"0.4": [(0.62, 0.2), (0.64, 0.3)], "0": [(0.60, 0.5), (0.60, 0.7)], "0.8": [(0.50, 0.1), (0.54, 0.1)]}
    given = made(rows, axis="p_switch")
    png, notes = draw(*given)
    assert png and png[:4] == b"\x89PNG"
    ((points, *rest),) = drawn
    assert rest == ["R@1", "glyphs"] and [round(p.score.mean, 9) for p in points] == [60, 63, 52]
    assert [(p.probability, round(p.rho.mean, 9)) for p in points] == [(0, 0.6), (0.4, 0.25), (0.8, 0.1)]
    assert notes == [
        "R@1 without regularisation 60.0 ± 0.0, best 63.0 ± 1.4 at p_switch 0.4, rho 0.600 ± 0.141 and 0.250 ± 0.071 (mean ± "
        "standard deviation over seeds). 1 of 2 probabilities have a higher mean than without; the best of several is biased "
        "upwards."
    ]
    with (given[1].folder / "switch_sweep.csv").open(encoding="utf-8") as lines:
        assert [line["p_switch"] for line in csv.DictReader(lines)] == ["0.0", "0.4", "0.8"]


def test_a_grid_without_the_axis_has_no_sweep(made):
    assert draw(*made({"a": [(0.5, 0.1)]})) == (
        None, ["no sweep: the grid needs an axis p_switch, whose names are probabilities"],
    )  # fmt: skip
