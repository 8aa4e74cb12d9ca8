"""The picture and the tables of a comparison: every number stands where it belongs, with its interval."""

import numpy as np
import pytest
from likewise.config import Compare
from matplotlib.colors import to_rgba
from PIL import Image

from likewise.core.render.figures import BETTER_COLOUR, WORSE_COLOUR, save_figure
from likewise.score.compare import MAX_NAMED_CLASSES, conclusion, draw_comparison, headline, show_comparison


def made(classes=12, same=None, name="class [bold] $x$ {}"):
    """A result as `compare` gives it, with numbers that are easy to find again."""
    each = [
        {"class": name.format(i), "queries": 4 + i, "difference": d, "low": d - 0.1, "high": d + 0.1}
        for i, d in enumerate(np.linspace(0.3, -0.2, classes).tolist())
    ]
    queries = {
        word: [{"row": 70 + i, "class": "[k]", "a": 0.1, "b": 0.9} for i in range(9)] for word in ("better", "worse")
    }

    def about(shift, wrong):
        ends = {"low": -0.01 + shift, "high": 0.05 + shift, "p": 0.25, "n": classes, "reason": ""}
        return {
            "a": 0.5, "b": 0.52 + shift, "difference": 0.02 + shift, "over_classes": ends, "right_or_wrong": wrong,
            "over_queries": ends | {"low": shift, "high": 0.04 + shift}, "conclusion": f"shifted by {shift}",
            "classes": {"better": 6, "equal": 1, "worse": 5, "each": each}, **queries,
        }  # fmt: skip

    return {
        "a": "runs/a", "b": "runs/b $", "same": same, "queries": 99, "classes": classes, "unscored": 3,
        "decides": "MAP@R", "over": "classes", "metrics": {"R@1": about(0, True), "MAP@R": about(0.01, False)},
    }  # fmt: skip


def test_a_comparison_on_data_has_a_headline_and_what_was_left_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    on = {"data": "data/corrected.csv", "noun": "images", "sentence": "5 of the 104 images are left out"}
    show_comparison(made() | {"on": on}, Compare("a", "b"))
    shown = capsys.readouterr().out
    assert "R@1 50.0 -> 52.0, MAP@R 50.0 -> 53.0 on the same 99 images, by the labels of corrected.csv." in shown
    assert "\n5 of the 104 images are left out.\n" in shown
    assert headline(made()) == ""


def test_points_and_whiskers_stand_at_their_numbers_in_their_colours():
    left, right = draw_comparison(made()).axes
    lines = [(line.get_xdata(), line.get_ydata()) for line in left.lines]
    spans = sorted(tuple(np.round(x, 6)) for x, y in lines if len(x) == 2 and y[0] == y[1])
    assert spans == [(-1, 5), (0, 4), (0, 6), (1, 5)]
    dots = sorted(round(float(x[0]), 6) for x, _ in lines if len(x) == 1)
    assert dots == [2, 2, 3, 3]
    assert [t.get_text() for t in left.get_yticklabels()] == ["R@1", "MAP@R"]
    assert [t.get_text() for t in left.get_legend().get_texts()] == ["over 12 classes", "over 99 queries"]
    assert right.get_title("left").startswith("MAP@R by class")
    whiskers, stems = right.collections[0].get_segments(), right.collections[-1].get_segments()
    want = 100 * np.linspace(0.3, -0.2, 12)
    assert [s[1][0] for s in stems] == pytest.approx(list(want))
    assert np.allclose([(s[0][0], s[1][0]) for s in whiskers], [(w - 10, w + 10) for w in want])
    colours = [to_rgba(BETTER_COLOUR if w > 0 else WORSE_COLOUR) for w in want]
    assert [tuple(colour) for colour in right.collections[-1].get_colors()] == colours


def test_of_many_classes_gains_and_losses_are_two_shapes():
    shapes = draw_comparison(made(MAX_NAMED_CLASSES + 1)).axes[1].collections
    ends = [(s.get_paths()[0].vertices[:, 0].min(), s.get_paths()[0].vertices[:, 0].max()) for s in shapes]
    assert np.allclose(ends, [(0, 30), (-20, 0)])
    assert [tuple(s.get_facecolor()[0]) for s in shapes] == [to_rgba(BETTER_COLOUR), to_rgba(WORSE_COLOUR)]


@pytest.mark.parametrize("classes", [1, MAX_NAMED_CLASSES, MAX_NAMED_CLASSES + 1, 3000])
def test_any_number_of_classes_is_drawn(classes, tmp_path):
    figure = draw_comparison(made(classes))
    names = [t.get_text() for t in figure.axes[1].get_yticklabels() if t.get_text()]
    assert len(names) == (classes if classes <= MAX_NAMED_CLASSES else 2)
    save_figure(figure, tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as page:
        page.load()
        assert page.width == 1650 and page.height < 1500


def test_odd_names_and_unknown_intervals_are_drawn_quietly(tmp_path, recwarn):
    """Names beyond the font, and names that are not UTF-8."""
    result = made(name="猫 \udcff {}\n") | {"a": "runs/\udcff"}
    result["metrics"]["MAP@R"]["over_classes"] |= {"low": None, "high": None}
    for one in result["metrics"]["MAP@R"]["classes"]["each"]:
        one |= {"low": None, "high": None}
    save_figure(draw_comparison(result), tmp_path / "x.png")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_tables_show_each_difference_with_its_interval(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    show_comparison(made(), Compare("a", "b"))
    out = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    assert ["R@1", "50.00", "52.00", "+2.00", "-1.00 to +5.00", "+0.00 to +4.00", "0.250"] in lines
    assert ["R@1", "6", "1", "5", "9 fixed", "9 broken"] in lines
    assert ["MAP@R", "6", "1", "5", "9", "9"] in lines
    assert ["class [bold] $x$ 0", "4", "+30.00", "+20.00 to +40.00"] in lines
    assert ["class [bold] $x$ 11", "15", "-20.00", "-30.00 to -10.00"] in lines
    assert ["row 70", "[k]", "10.0", "90.0"] in lines  # these queries have no path
    assert "Shifted by 0.01." in out and "Queries without relevant rows, left out: 3." in out
    assert "p over classes" in out and "No interval" not in out and "Each network is one training" in out
    assert conclusion(made(same="A and B are the same run: all")) == "A and B are the same run: all"


def test_what_cannot_be_believed_is_marked_or_left_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    result = made(4) | {"over": "queries"}
    result["metrics"]["MAP@R"]["classes"]["each"][0] |= {"low": None, "high": None, "queries": 1}
    for about in result["metrics"].values():
        reason = "there are 4 classes, and 10 are needed"
        about["over_classes"] = {"low": None, "high": None, "p": None, "n": 4, "reason": reason}
    show_comparison(result, Compare("a", "b"))
    out = capsys.readouterr().out
    assert "95 % over 4 classes" in out and out.count("none") == 2 and "p over queries" in out
    assert "No interval over classes for R@1, MAP@R: there are 4 classes, and 10 are needed." in out
    assert "$x$ 0" not in out and "$x$ 1" in out
