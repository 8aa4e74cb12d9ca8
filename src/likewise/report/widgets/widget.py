"""Base class of the widgets: it answers the messages of the view in the browser, and sends images as JPEG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from likewise.core.errors import LikewiseError
from likewise.core.image_files import as_jpeg

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise LikewiseError(
        f"widgets: the package anywidget must be installed ({error}); run pip install 'likewise[notebook]'"
    ) from None

STATIC_FOLDER = Path(__file__).parent / "static"
IMAGE_SIDES = {False: 128, True: 448}
"""Whether an image is large -> its longest side in pixels."""


class Widget(anywidget.AnyWidget):
    """A widget whose view sends messages `{"do": ACTION, ...}`.

    A subclass has `load_image` and `perform`. Images are sent when the view requests them, by row number: no path comes from
    the browser, and no image is stored in the notebook's file.
    """

    message = traitlets.Unicode().tag(sync=True)
    """What the view shows below the buttons: the last error, or what was written."""

    def __init__(self, **traits: Any):
        super().__init__(**traits)
        self.on_msg(self.receive)

    def load_image(self, row: int) -> Image.Image:
        """Return the image of a row; raise a LikewiseError if there is none."""
        raise NotImplementedError

    def perform(self, action: str, content: dict) -> str:
        """Do what the view requests, apart from images, and return what the view shows about it."""
        raise NotImplementedError

    def receive(self, widget: Any, content: Any, buffers: Any) -> None:
        """Answer a message of the view. An error becomes the message of the widget, because a view shows no traceback."""
        action = content.get("do") if isinstance(content, dict) else None
        if action == "image":
            return self.send_image(content.get("row"), content.get("large") is True)
        try:
            if not isinstance(action, str):
                raise LikewiseError(
                    f"{type(self).__name__}: a message must name its action in 'do', got {content!r}; show the widget again"
                )
            self.message = self.perform(action, content)
        except LikewiseError as error:
            self.message = str(error)

    def send_image(self, row: Any, large: bool) -> None:
        """Send the image of a row to the view, or the reason why there is none."""
        answer = {"image": row, "large": large}
        try:
            if not isinstance(row, int) or isinstance(row, bool):
                raise LikewiseError(
                    f"{type(self).__name__}: a row must be a whole number, got {row!r}; show the widget again"
                )
            self.send({**answer, "error": ""}, [as_jpeg(self.load_image(row), IMAGE_SIDES[large])])
        except LikewiseError as error:
            self.send({**answer, "error": str(error)})
