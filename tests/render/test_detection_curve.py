"""How soon wrong labels are found: every curve in its panel, colours told apart, legends beside no curve."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from PIL import Image

from likewise.render.detection_curve import MAX_ROW_PANELS, Curve, draw_detection
from likewise.render.figures import COLOURS, save_figure

AT = np.linspace(0, 1, 11)


def curves(panels, names):
    return [
        Curve(panel, name, AT, 1 - (1 - AT) ** (2 + p + n), f"AP {10 * p + n}")
        for p, panel in enumerate(panels)
        for n, name in enumerate(names)
    ]


def test_every_curve_is_drawn_in_per_cent_in_its_panel_and_a_method_keeps_its_colour():
    made = curves(["shift $1", "shift 5"], ["a", "b_$c"])
    figure = draw_detection([*made[:2], made[3]])  # the first method is missing in the second panel
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["shift $1", "shift 5"]
    chance, *drawn = first.get_lines()
    assert list(chance.get_xdata()) == list(chance.get_ydata()) == [0, 100]
    for line, curve in zip(drawn, made):
        assert list(line.get_xdata()) == pytest.approx(100 * curve.at)
        assert list(line.get_ydata()) == pytest.approx(100 * curve.found)
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["a AP 0", "b_$c AP 1"]
    (alone,) = second.get_lines()[1:]
    assert alone.get_color() == drawn[1].get_color() != drawn[0].get_color()
    assert second.get_ylabel() == "" and first.get_ylabel() == "wrong labels found (%)"


def test_more_methods_than_colours_are_told_apart_by_their_lines():
    lines = draw_detection(curves(["p"], [f"method {n}" for n in range(14)])).axes[0].get_lines()[1:]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 14
    for a, b in itertools.combinations(COLOURS, 2):
        assert np.linalg.norm(np.subtract(to_rgb(a), to_rgb(b))) > 0.25


@pytest.mark.parametrize(("panels", "methods"), [(1, 12), (3, 3), (MAX_ROW_PANELS + 1, 7)])
def test_legends_lie_below_their_panel_and_nothing_touches_or_leaves_the_picture(panels, methods):
    names = [f"MultiSimilarity(alpha=2.0, beta=40.0, number={n})" if n % 3 else f"method {n}" for n in range(methods)]
    figure = draw_detection(curves([f"noise {p}" for p in range(panels)], names))
    FigureCanvasAgg(figure).draw()
    legends = [axes.get_legend().get_window_extent() for axes in figure.axes]
    whole = [axes.get_tightbbox() for axes in figure.axes]
    assert all(legend.y1 <= axes.bbox.y0 for legend, axes in zip(legends, figure.axes))
    assert not any(a.overlaps(b) for a, b in itertools.combinations(whole, 2))
    edge = figure.bbox
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= edge.x1 + 1 and box.y1 <= edge.y1 + 1 for box in whole)
    assert all(axes.bbox.height > 150 for axes in figure.axes)


def test_the_picture_shows_all_colours(tmp_path):
    file = tmp_path / "detection.png"
    save_figure(draw_detection(curves(["x", "y", "z"], ["a", "b", "c"])), file)
    found = {colour for _, colour in Image.open(file).convert("RGB").getcolors(1 << 20)}
    assert {tuple(round(255 * v) for v in to_rgb(c)) for c in COLOURS[:3]} <= found
