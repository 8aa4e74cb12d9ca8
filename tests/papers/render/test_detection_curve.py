"""How soon wrong labels are found: every curve in its panel, a score keeps its colour, and nothing leaves the picture."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from PIL import Image

from likewise.core.render.figures import COLOURS, save_figure
from likewise.papers.figures.detection import Curve, draw_detection

AT = np.linspace(0, 1, 11)


def curves(rows, columns, names):
    return [
        Curve(row, column, name, AT, 1 - (1 - AT) ** (2 + p + n), f"AP {10 * p + n}")
        for p, (row, column) in enumerate(itertools.product(rows, columns))
        for n, name in enumerate(names)
    ]


def test_every_curve_is_drawn_in_per_cent_in_its_panel_and_a_score_keeps_its_colour():
    made = curves(["plain $"], ["shift $1", "shift 5"], ["a", "b_$c"])
    figure = draw_detection([*made[:2], made[3]])  # the first score is missing in the second panel
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["plain $, shift $1", "plain $, shift 5"]
    chance, *drawn = first.get_lines()
    assert list(chance.get_xdata()) == list(chance.get_ydata()) == [0, 100]
    for line, curve in zip(drawn, made):
        assert list(line.get_xdata()) == pytest.approx(100 * curve.at)
        assert list(line.get_ydata()) == pytest.approx(100 * curve.found)
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["a AP 0", "b_$c AP 1", "random order"]
    (alone,) = second.get_lines()[1:]
    assert alone.get_color() == drawn[1].get_color() != drawn[0].get_color()
    assert second.get_ylabel() == "" and first.get_ylabel() == "wrong labels found (%)"


def test_classes_are_thin_lines_and_the_signed_order_is_dashed_in_the_same_colour():
    thin = [AT**2, AT**0.5]
    made = [
        Curve("m", "n", "|EIF|", AT, (AT**2 + AT**0.5) / 2, classes=thin),
        Curve("m", "n", "EIF", AT, AT, dashed_of="|EIF|"),
    ]
    (axes,) = draw_detection(made).axes
    _, one, other, mean, signed = axes.get_lines()
    assert [list(line.get_ydata()) for line in (one, other)] == [list(100 * found) for found in thin]
    assert one.get_linewidth() < signed.get_linewidth() < mean.get_linewidth()
    assert one.get_color() == mean.get_color() == signed.get_color()
    assert (mean.get_linestyle(), signed.get_linestyle()) == ("-", "--")
    assert len(axes.get_legend().get_texts()) == 3  # thin lines have no entry


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3)])
def test_panels_do_not_touch_and_nothing_leaves_the_picture(rows, columns):
    names = [f"order {n} with a long name" for n in range(6)]
    methods = [f"MultiSimilarity(alpha=2.0, beta=40.0, number={n})" for n in range(rows)]
    figure = draw_detection(curves(methods, [f"noise {p}" for p in range(columns)], names))
    FigureCanvasAgg(figure).draw()
    assert len(figure.axes) == rows * columns
    whole = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(whole, 2))
    edge = figure.bbox
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= edge.x1 + 1 and box.y1 <= edge.y1 + 1 for box in whole)
    legends = [axes.get_legend().get_window_extent() for axes in figure.axes]
    assert all(axes.bbox.x0 <= box.x0 and box.y1 < axes.bbox.y1 for axes, box in zip(figure.axes, legends))


def test_the_picture_shows_all_colours_and_they_differ(tmp_path):
    file = tmp_path / "detection.png"
    save_figure(draw_detection(curves(["x"], ["y", "z"], ["a", "b", "c"])), file)
    found = {colour for _, colour in Image.open(file).convert("RGB").getcolors(1 << 20)}
    assert {tuple(round(255 * v) for v in to_rgb(c)) for c in COLOURS[:3]} <= found
    for a, b in itertools.combinations(COLOURS, 2):
        assert np.linalg.norm(np.subtract(to_rgb(a), to_rgb(b))) > 0.25
