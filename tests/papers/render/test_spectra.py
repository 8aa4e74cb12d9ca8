"""The drawing of spectra: a panel per method, a line per variant, one range, and no zeros on a logarithmic axis."""

import numpy as np
import pytest

from likewise.papers.figures.spectra import SpectrumLine, common_range, draw_spectra


def test_every_panel_has_its_lines_on_the_same_range():
    values = np.array([0.5, 0.3, 0.2, 0.0])
    lines = [SpectrumLine(p, n, values, "#000000") for p in ("A", "B", "C", "D") for n in ("without", "with")]
    figure = draw_spectra(lines, "cub200")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["A", "B", "C", "D"]
    assert {len(axes.lines) for axes in figure.axes} == {2} and {axes.get_yscale() for axes in figure.axes} == {"log"}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 2, 3]  # the value of rank 4 is 0
    title = "singular value, share of the sum"
    assert figure.texts[0].get_text() == "Singular values of the classes on cub200"
    assert [axes.get_ylabel() for axes in figure.axes] == [title, "", "", title]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["without", "with"]


def test_the_range_holds_all_positive_values():
    assert common_range([np.array([0.5, 0.0]), np.array([0.25, 0.1])]) == pytest.approx((0.08, 0.625))
