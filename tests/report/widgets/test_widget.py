"""Messages between a widget and its view, and the error without the extra."""

import builtins
import importlib
import io
import sys

import pytest
from likewise.errors import LikewiseError
from PIL import Image

import likewise

pytest.importorskip("anywidget", reason="needs likewise[notebook]")


@pytest.fixture
def widget():
    """A widget with three rows, the last without an image, which keeps what it sends and performs."""
    from likewise.report.widgets.widget import Widget

    class Small(Widget):
        sent, done = [], []

        def load_image(self, row):
            if row > 1:
                raise LikewiseError(f"Small: row {row} has no image; use another")
            return Image.new("RGB", (900, 300))

        def perform(self, action, content):
            if action == "fail":
                raise LikewiseError("Small: this fails; try another")
            self.done.append((action, content))
            return f"{action} is done"

        def send(self, content, buffers=None):
            self.sent.append((content, buffers))

    return Small()


@pytest.mark.parametrize(("large", "size"), [(False, (128, 43)), (True, (448, 149))])
def test_an_image_is_sent_as_a_small_jpeg_when_the_view_requests_its_row(widget, large, size):
    widget.receive(widget, {"do": "image", "row": 1, "large": large}, [])
    content, (body,) = widget.sent.pop()
    assert content == {"image": 1, "large": large, "error": ""}
    with Image.open(io.BytesIO(body)) as image:
        assert image.format == "JPEG" and image.size == size


@pytest.mark.parametrize("row", [2, "../../etc/passwd", None, True, 1.0])
def test_a_row_without_an_image_gets_an_error_in_its_place(widget, row):
    widget.receive(widget, {"do": "image", "row": row}, [])
    content, buffers = widget.sent.pop()
    assert content["image"] == row and content["error"].startswith(("Small: row 2 has", "Small: a row must be a whole"))
    assert buffers is None


def test_an_action_is_performed_and_its_error_becomes_the_message(widget):
    widget.receive(widget, {"do": "fail"}, [])
    assert widget.message == "Small: this fails; try another"
    widget.receive(widget, {"do": "work", "n": 3}, [])
    assert widget.message == "work is done" and widget.done == [("work", {"do": "work", "n": 3})]


@pytest.mark.parametrize("content", [None, [], "keep", {}, {"do": 3}])
def test_a_message_without_an_action_is_refused(widget, content):
    widget.receive(widget, content, [])
    assert "a message must name its action in 'do'" in widget.message


@pytest.mark.parametrize("name", ["ReviewWidget", "MapWidget"])
def test_without_anywidget_the_error_names_the_extra(name, monkeypatch):
    for module in [one for one in sys.modules if one.startswith(("likewise.report.widgets", "anywidget"))]:
        monkeypatch.delitem(sys.modules, module)
    real = builtins.__import__

    def fail(wanted, *rest, **more):
        if wanted.partition(".")[0] in ("anywidget", "traitlets"):
            raise ImportError(f"No module named '{wanted}'")
        return real(wanted, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(LikewiseError, match=r"anywidget must be installed .*pip install 'likewise\[notebook\]'"):
        getattr(likewise, name)
    monkeypatch.undo()
    importlib.import_module("likewise.report.widgets.review")


def test_an_import_of_everything_needs_no_widget():
    assert not {"ReviewWidget", "MapWidget"} & set(likewise.__all__)
    with pytest.raises(AttributeError, match="its names are: .*ReviewWidget, MapWidget"):
        likewise.Widgets  # noqa: B018
