"""The sweep of the interval between clusterings: its points in order, the printed values, and training without groups."""

import csv

import pytest
from likewise.config import Train

from likewise.papers.figures import interval_sweep as module
from likewise.papers.figures.interval_sweep import draw, interval_of
from likewise.papers.published import numbers

PLAIN = "ProxyNCA()"


def loss(every):
    return {"loss": f"Hierarchical(loss=ProxyNCA(), every={every!r})"}


@pytest.mark.parametrize(
    ("spec", "steps"),
    [(loss(20)["loss"], 20), (loss("1e")["loss"], None), (PLAIN, None), ("Hierarchical(loss=ProxyNCA())", 20)],
)
def test_intervals(spec, steps):
    assert interval_of(Train("glyphs", loss=spec)) == steps


def test_points_are_those_of_the_table_beside_the_printed_ones(made, monkeypatch):
    drawn = []
    real = module.draw_intervals
    monkeypatch.setattr(module, "draw_intervals", lambda points, metric: drawn.append(points) or real(points, metric))
    rows = {"T 40": [(0.62, 0), (0.64, 0)], "plain": [(0.60, 0), (0.60, 0)], "T 10": [(0.50, 0), (0.54, 0)]}
    printed = {"T 10": number_of("HPL-NCA (|P1|=10; T=10)"), "plain": number_of("Proxy-NCA")}
    given = made(rows, printed=printed, **{"T 40": loss(40), "T 10": loss(10), "plain": {"loss": PLAIN}})
    png, notes = draw(*given)
    assert png and png[:4] == b"\x89PNG"
    (points,) = drawn
    assert [(p.interval, round(p.score.mean, 9), p.printed) for p in points] == [
        (None, 60, 82.8), (10, 52, 84.7), (40, 63, None),
    ]  # fmt: skip
    assert notes == ["R@1 with groups: 52.0 (every 10 steps) to 63.0 (every 40); without groups 60.0 ± 0.0."]
    with (given[1].folder / "interval_sweep.csv").open(encoding="utf-8") as lines:
        assert [(line["every"], line["printed"]) for line in csv.DictReader(lines)] == [
            ("", "82.8"), ("10", "84.7"), ("40", ""),
        ]  # fmt: skip


def number_of(method):
    (number,) = numbers(paper="hierarchical", table="figure 2", method=method)
    return number


def test_a_table_without_groups_has_no_sweep(made):
    given = made({"plain": [(0.5, 0.1)]}, plain={"loss": PLAIN})
    assert draw(*given) == (None, ["no sweep: no finished training has groups with an interval in steps"])
