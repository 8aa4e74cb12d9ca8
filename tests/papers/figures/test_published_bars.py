"""Bars of published numbers: every number of the sources has its bar, and our trainings are read beside them."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from likewise.papers.figures.published_bars import (
    BAR_COLOURS,
    BAR_SOURCES,
    PROXY_METHODS,
    UNTRAINED_METHODS,
    BarGroup,
    PublishedBar,
    describe,
    draw_published_bars,
    our_means,
)
from likewise.papers.published import numbers
from likewise.score.intervals import Interval


def test_every_published_number_of_the_sources_has_a_bar(tmp_path, drawn_alone):
    folder = tmp_path / "influence-figure1"
    folder.mkdir()
    lines, notes = drawn_alone("published_bars", folder)
    wanted = [n for p, t in BAR_SOURCES for n in numbers(paper=p, table=t, dataset="CUB200", metric="R@1")]
    assert sorted(float(r["printed"]) for r in lines) == sorted(n.mean for n in wanted) and len(lines) == 35
    known = {n.method for n in wanted}
    assert set(PROXY_METHODS) <= known and set(UNTRAINED_METHODS) <= known  # no misspelt name
    assert all(r["ours"] == "" for r in lines) and "Without our trainings" in notes[-1]
    assert "three best are S2SD+PLG 71.4, IB-DML 70.3, ProcSim 70.1: 0 of 3 have." in notes[0]


def test_our_trainings_are_beside_the_numbers_of_their_own_table(tmp_path, drawn_alone):
    other, folder = tmp_path / "influence-table1", tmp_path / "influence-figure1"
    other.mkdir(), folder.mkdir()
    (other / "table.csv").write_text(
        "method,column,metric,mean,std,low,high,n\nSoftTriple,,R@1,60.5,,,,1\nProxyNCA++,,R@1,66,1,65,67,5\n"
        "ProxyAnchor,,R@1,,,,,0\nProxyAnchor,,R@2,70,,,,1\n",
        "utf-8",
    )
    found = our_means(other / "table.csv")
    assert set(found) == {"SoftTriple", "ProxyNCA++"} and found["ProxyNCA++"][:4] == (66, 65, 67, 5)
    assert math.isnan(found["SoftTriple"].low)
    lines, notes = drawn_alone("published_bars", folder)
    ours = {(r["paper"], r["method"]): r["ours"] for r in lines if r["ours"]}
    assert ours == {("influence", "SoftTriple"): "60.5", ("influence", "ProxyNCA++"): "66.0"}
    assert not any("Without our trainings" in note for note in notes)
    assert our_means(tmp_path / "none.csv") == {}


@pytest.mark.parametrize(("proxies", "count"), [((True, True, False, True), 2), ((False, False, False, True), 0)])
def test_the_three_best_are_counted(proxies, count):
    bars = [PublishedBar(name, mean, None, has) for name, mean, has in zip("abcd", (9, 8, 7, 6), proxies)]
    text = describe([BarGroup("x", bars[2:]), BarGroup("y", bars[:2])])
    assert f"a 9.0, b 8.0, c 7.0: {count} of 3 have." in text


GROUPS = [
    BarGroup("study", [PublishedBar("a", 60.0, 1.5, True, Interval(55.0, 54.0, 56.0, 3)), PublishedBar("b", 50.0, None, False)]),
    BarGroup("other", [PublishedBar("c_$", 40.0, None, None, Interval(41.0, np.nan, np.nan, 1))]),
]  # fmt: skip


def test_bars_start_at_zero_and_have_their_numbers():
    figure = draw_published_bars(GROUPS, "R@1")
    first, second = figure.axes
    assert [(bar.get_x(), bar.get_width()) for bar in first.patches] == [(0, 60), (0, 50)]
    colours = [bar.get_facecolor()[:3] for axes in figure.axes for bar in axes.patches]
    assert np.allclose(colours, [to_rgb(BAR_COLOURS[kind]) for kind in (True, False, None)])
    assert [text.get_text() for text in first.texts] == ["60.0 ± 1.5  (ours 55.0)", "50.0"]
    assert [text.get_text() for text in second.texts] == ["40.0  (ours 41.0)"]
    spread, interval, mean = first.get_lines()
    assert list(spread.get_xdata()) == [58.5, 61.5] and list(interval.get_xdata()) == [54, 56]
    assert list(mean.get_xdata()) == [55]
    assert first.get_xlim() == second.get_xlim() and first.get_xlim()[0] == 0
    assert [t.get_text() for t in figure.texts] == ["study", "other"] and second.get_xlabel() == "R@1 (%)"


def test_the_legend_names_our_mean_only_if_there_is_one():
    for groups, has_ours in ((GROUPS, True), ([BarGroup("x", GROUPS[0].bars[1:])], False)):
        names = [text.get_text() for text in draw_published_bars(groups, "R@1").legends[0].get_texts()]
        assert ("our mean" in names) == has_ours
