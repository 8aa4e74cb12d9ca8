"""Bars of published numbers: every number of the sources has its bar, and our trainings are read beside them."""

import math

import pytest

from likewise.papers.figures.published_bars import (
    BAR_SOURCES,
    PROXY_METHODS,
    UNTRAINED_METHODS,
    BarGroup,
    PublishedBar,
    describe,
    our_means,
)
from likewise.papers.published import numbers


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
