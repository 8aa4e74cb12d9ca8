"""The heat map and the words of overlapping errors: every cell, count and share stands where it belongs."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from likewise.core.render.figures import COLOURS, save_figure
from likewise.score.error_overlap import (
    EMPTY_COLOUR,
    MAX_DRAWN_CLASSES,
    ErrorOverlap,
    Named,
    describe_overlap,
    draw_overlap,
    show_overlap,
)

HEAT = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1]], bool)


def made(heat=HEAT, methods=("A()", "A()", "B(x=1)", "B(x=1)"), within=0.5, between=0.625, ways=("count", "rate")):
    classes = tuple(f"bird [b] ${c}$" for c in range(heat.shape[1]))
    named = Named(classes, heat, within, between, 0.2)
    runs = tuple(f"all/runs/{m[0]}/{i}" for i, m in enumerate(methods))
    return ErrorOverlap(runs, tuple(methods), 2, 10, dict.fromkeys(ways, named))


def test_cells_are_filled_in_the_colour_of_the_method():
    figure = draw_overlap(made())
    assert len(figure.axes) == 2
    for axes in figure.axes:
        colours = [bar.get_facecolor() for bar in axes.patches]
        rows = [bar.get_y() for bar in axes.patches]
        assert rows == sorted(rows) and len(colours) == 16
        for place, colour in enumerate(colours):
            row, column = divmod(place, 4)
            assert colour == to_rgba(COLOURS[row // 2] if HEAT[row, column] else EMPTY_COLOUR)
        assert [t.get_text() for t in axes.get_yticklabels()] == ["A/0", "A/1", "B/2", "B/3"]
        assert [t.get_text() for t in axes.get_xticklabels()] == [f"bird [b] ${c}$" for c in range(4)]
        texts = [t.get_text() for t in axes.texts]
        assert texts == ["A()", "B(x=1)", "4", "2", "1", "1"]


def test_runs_of_one_method_stand_together_whatever_their_order():
    axes = draw_overlap(made(methods=("A()", "B()", "A()", "B()"))).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["A/0", "A/2", "B/1", "B/3"]
    filled = [bar.get_facecolor() != to_rgba(EMPTY_COLOUR) for bar in axes.patches]
    assert filled == HEAT[[0, 2, 1, 3]].ravel().tolist()


def test_of_many_classes_the_most_named_are_drawn_and_the_rest_is_counted():
    found = made(np.ones((2, MAX_DRAWN_CLASSES + 7), bool), ("A()", "B()"), ways=("count",))
    axes = draw_overlap(found).axes[0]
    assert len(axes.get_xticklabels()) == MAX_DRAWN_CLASSES and "7 more classes" in " ".join(
        axes.get_title("left").split()
    )


@pytest.mark.parametrize(
    ("within", "between", "words"),
    [
        (0.5, 0.625, "two runs of one method share 50 % of their 2 most wrong classes by rate, two of different methods 62 %"),
        (0.5, np.nan, "two runs of one method share 50 % of their 2 most wrong classes by rate"),
        (np.nan, 0.4, "two runs of different methods share 40 % of their 2 most wrong classes by rate"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_there_is(within, between, words):
    assert describe_overlap(made(within=within, between=between), "rate") == f"{words}; by chance 20 %"


def test_the_terminal_shows_who_names_what(capsys):
    show_overlap(made())
    said = " ".join(capsys.readouterr().out.split())
    assert "bird [b] $0$ │ 4 of 4 │ 2 │ 2" in said and "bird [b] $3$ │ 1 of 4 │ 0 │ 1" in said
    assert "Two runs of one method share 50 %" in said


def test_the_picture_can_be_saved_and_is_not_empty(tmp_path):
    file = tmp_path / "overlap.png"
    save_figure(draw_overlap(made()), file)
    colours = {colour for _, colour in Image.open(file).convert("RGB").getcolors(1 << 20)}
    assert {tuple(round(255 * v) for v in to_rgba(c)[:3]) for c in COLOURS[:2]} <= colours
