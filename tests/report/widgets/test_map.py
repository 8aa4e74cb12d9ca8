"""MapWidget: points, colours, images, selection, bad input, and its view in a browser."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("anywidget", reason="needs likewise[notebook]")

from likewise.errors import LikewiseError
from widget_page import View

import likewise
from likewise import MapWidget
from likewise.report.projection import pca

Z = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
Y = np.array(["wren", "robin", "tit"])[np.arange(30) % 3]


def points(widget):
    return np.frombuffer(widget.points, "<f4").reshape(-1, 2)


def test_the_points_are_those_of_the_report_in_a_square():
    widget = MapWidget(Z, Y)
    flat, shown = pca(torch.as_tensor(Z)), points(widget)
    span = flat.max(0) - flat.min(0)
    by_hand = [
        [2 * (p - (flat[:, c].max() + flat[:, c].min()) / 2) / span.max() for c, p in enumerate(row)] for row in flat
    ]
    np.testing.assert_allclose(shown, by_hand, atol=1e-5)
    assert np.abs(shown).max() == pytest.approx(1)


def test_labels_and_scores_are_numbers_of_the_view():
    widget = MapWidget(torch.as_tensor(Z), Y, score=np.array([0.1, 0.5, np.nan] + 27 * [0.9]))
    assert [widget.names[c] for c in np.frombuffer(widget.labels, "<u4")] == Y.tolist()
    assert list(widget.suspects[:4]) == [1, 0, 2, 0] and widget.colour == "suspect"
    plain = MapWidget(Z, np.arange(30) % 3)
    assert (plain.suspects, plain.colour, plain.pictures) == (b"", "class", False)
    assert plain.names == ["0", "1", "2"]


def test_a_selection_of_the_view_is_an_array_in_python():
    widget, seen = MapWidget(Z, Y), []
    widget.observe(lambda change: seen.append(change["new"].tolist()), "selected")
    assert widget.selected.dtype == np.int64 and widget.selected.tolist() == []
    widget.set_state({"selected": memoryview(np.array([3, 7], "<u4").tobytes())})
    assert widget.selected.tolist() == [3, 7] and Z[widget.selected].shape == (2, 5)
    widget.selected = [7, 2, 2]
    assert widget.selected.tolist() == [2, 7]
    assert widget.get_state("selected")["selected"] == np.array([2, 7], "<u4").tobytes()
    widget.selected = []
    assert seen == [[3, 7], [2, 7], []]


@pytest.mark.parametrize("wrong", [[30], [-1, 2], np.ones(30, bool), [0.5], [[1]], ["a"]])
def test_a_wrong_selection_is_refused(wrong):
    widget = MapWidget(Z, Y)
    with pytest.raises(LikewiseError, match="MapWidget: selected must be"):
        widget.selected = wrong
    assert widget.selected.tolist() == []


def test_images_are_sent_by_index(tmp_path):
    paths = [tmp_path / f"{n}.png" for n in range(30)]
    Image.new("RGB", (300, 200)).save(paths[4])
    widget = MapWidget(Z, Y, paths)
    assert widget.pictures and widget.load_image(4).size == (300, 200)
    assert str(tmp_path) not in str({k: v for k, v in widget.get_state().items() if k not in ("_esm", "_css")})
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    for row, words in ((5, "5.png"), (30, "point 30 has no image"), (-1, "point -1 has no image")):
        widget._handle_custom_msg({"row": row}, [])
        content, buffers = sent.pop()
        assert content["image"] == row and words in content["error"] and buffers is None
    widget._handle_custom_msg({"row": 4}, [])
    (content, (body,)) = sent.pop()
    assert content == {"image": 4, "error": ""}
    with Image.open(io.BytesIO(body)) as image:
        assert image.format == "JPEG" and image.size == (128, 85)


@pytest.mark.parametrize("content", [None, [], "image", {}, {"row": "../../etc/passwd"}, {"row": True}, {"row": 1.0}])
def test_other_messages_are_ignored(content):
    widget = MapWidget(Z, Y, [f"{n}.png" for n in range(30)])
    widget.send = pytest.fail
    widget._handle_custom_msg(content, [])


def test_without_anywidget_the_error_names_the_extra(monkeypatch):
    for module in [one for one in sys.modules if one.startswith(("likewise.report.widgets", "anywidget"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(LikewiseError, match=r"anywidget .*pip install 'likewise\[notebook\]'"):
        likewise.MapWidget  # noqa: B018


def test_an_import_of_everything_needs_no_widget():
    assert "MapWidget" not in likewise.__all__
    with pytest.raises(AttributeError, match="its names are: .*MapWidget"):
        likewise.ReviewWidget  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        ((Z[0], Y), {}, "must have the shape"),
        ((Z, Y[:3]), {}, "label"),
        ((Z, Y, ["a.jpg"]), {}, "paths must be a list of 30 files, got 1"),
        ((Z, Y, "a.jpg"), {}, "paths must be a list of 30 files, got one path"),
        ((Z, Y), {"score": [0.5]}, "score must be 30 numbers"),
        ((Z, Y), {"score": Y}, "score must be 30 numbers"),
        ((Z, Y), {"method": "pcaa"}, "method must be one of pca, tsne, umap, got 'pcaa'"),
        ((np.zeros((60_001, 1), np.float32), np.zeros(60_001, int)), {}, "at most 60000 rows, got 60001"),
    ],
)
def test_bad_input_is_an_error(arguments, more, words):
    with pytest.raises(LikewiseError, match=words):
        MapWidget(*arguments, **more)


def test_equal_points_and_one_dimension_have_a_map():
    assert points(MapWidget(np.ones((4, 3), np.float32), [0, 0, 1, 1])).tolist() == [[0, 0]] * 4
    assert points(MapWidget(np.arange(3, dtype=np.float32)[:, None], [0, 0, 1])).tolist() == [[-1, 0], [0, 0], [1, 0]]


@pytest.fixture
def view(browser, tmp_path):
    """Four points in the corners of the map and one in its middle, the last one suspect."""
    z = np.array([[-2, -1], [-2, 1], [2, -1], [2, 1], [0, 0]], np.float32)
    paths = [tmp_path / f"{n}.png" for n in range(5)]
    Image.new("RGB", (300, 200)).save(paths[4])
    made = View(browser, MapWidget(z, ["wren", "wren", "tit", "tit", "tit"], paths, score=[0.9, 0.9, 0.9, np.nan, 0.1]))
    yield made
    made.close()


def drag(page, *corners):
    """Drag over the canvas; corners from -1 to 1, as the points."""
    box = page.locator("canvas").bounding_box()
    at = [(box["x"] + box["width"] / 2 + 228 * x, box["y"] + 240 - 228 * y) for x, y in corners]
    page.mouse.move(*at[0])
    page.mouse.down()
    for place in at[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def selected(view):
    """Pass the view's last selection to the widget, and return it."""
    saved = view.page.evaluate("() => Array.from(new Uint8Array(model.saved.at(-1).selected.buffer))")
    view.widget.set_state({"selected": memoryview(bytes(saved))})
    return view.widget.selected.tolist()


@pytest.mark.browser
def test_lasso_and_box_select_points(view):
    page = view.page
    drag(page, (-1.2, 0.9), (-0.8, 0.9), (-0.8, -0.9), (-1.2, -0.9))
    assert selected(view) == [0, 1]
    page.click("text=Box")
    page.keyboard.down("Shift")
    drag(page, (-0.2, 0.2), (0.2, -0.2))
    page.keyboard.up("Shift")
    assert selected(view) == [0, 1, 4] and "5 points, 3 selected" in page.inner_text(".lw-count")
    drag(page, (0.7, 0.8), (1.3, 0.2))
    right_top = [n for n, (x, y) in enumerate(points(view.widget)) if x > 0.5 and y > 0.1]
    assert selected(view) == right_top and len(right_top) == 1
    page.focus("canvas")
    page.keyboard.press("Escape")
    assert selected(view) == []


@pytest.mark.browser
def test_the_pointer_shows_label_and_image(view):
    page = view.page
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + 240)
    page.wait_for_function("() => model.sent.length")
    assert view.answer() == [{"row": 4}]
    page.wait_for_selector(".lw-tip img[src^='data:image/jpeg']")
    assert page.inner_text(".lw-tip").split("\n")[:1] == ["tit (suspect)"] and "index 4" in page.inner_text(".lw-tip")
    page.mouse.move(box["x"] + box["width"] / 2 + 100, box["y"] + 240)
    assert page.is_hidden(".lw-tip")


@pytest.mark.browser
def test_colours_show_classes_or_suspect_labels(view):
    page = view.page
    pixel = """() => {
      const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      copy.drawImage(document.querySelector("canvas"), -400, -240);
      return Array.from(copy.getImageData(0, 0, 1, 1).data);
    }"""
    assert page.evaluate(pixel) == [0xE4, 0x57, 0x2E, 255]
    page.click("text=By class")
    assert page.evaluate("() => model.saved.at(-1)") == {"colour": "class"}
    assert page.evaluate(pixel)[:3] != [0xE4, 0x57, 0x2E] and page.evaluate(pixel)[3] == 255


@pytest.mark.browser
def test_sixty_thousand_points_are_drawn_and_selected(browser):
    rng = np.random.default_rng(0)
    view = View(browser, MapWidget(rng.normal(size=(60_000, 2)).astype(np.float32), np.arange(60_000) % 200))
    drag(view.page, (-1.03, 1.03), (1.03, 1.03), (1.03, -1.03), (-1.03, -1.03))
    assert "60,000 points" in view.page.inner_text(".lw-count")
    assert selected(view) == list(range(60_000))
    view.close()
