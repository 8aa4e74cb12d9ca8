"""MapWidget: embeddings as points in the plane, with images under the pointer and a selection that Python reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image

from likewise.core.errors import LikewiseError, nearest_name, pip_install
from likewise.core.image_files import as_jpeg
from likewise.data.features import as_array, from_arrays
from likewise.data.images import read_image
from likewise.report import projection

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise LikewiseError(
        f"widgets: the package anywidget must be installed ({error}); run {pip_install('likewise[notebook]')}"
    ) from None

STATIC_FOLDER = Path(__file__).parent / "static"
IMAGE_SIDE = 128
"""Longest side of an image under the pointer, in pixels."""
MAX_POINTS = 60_000
"""Largest number of points: the browser draws them all at each change."""
MAP_METHODS = {"pca": projection.pca, "tsne": projection.tsne, "umap": projection.umap}
"""Name of a map -> the function that computes it."""
SUSPECT_SCORE_THRESHOLD = 0.5
"""A label with a lower score is suspect: more likely wrong than right."""


class MapWidget(anywidget.AnyWidget):
    """A map of embeddings: colour by class or by suspect label, image and label under the pointer, selection by lasso or box.

        widget = likewise.MapWidget(z, y, paths)  # the last expression of a cell shows it
        z[widget.selected]

    Drag to select; Shift adds to the selection, Escape clears it; Ctrl and the wheel zoom, a double click shows all points.

    Args:
        z: embeddings (N, D) of numpy or torch; at most 60,000.
        y: N labels, integers or strings.
        paths: N image files; None: labels alone are shown.
        score: N label scores, such as `likewise.audit_labels(z, y).score`: labels below 0.5 are suspect, NaN is unknown.
        method: pca, or tsne or umap (extra `map`).
    """

    _esm = STATIC_FOLDER / "map.js"
    _css = STATIC_FOLDER / "map.css"
    points = traitlets.Bytes().tag(sync=True)
    """Coordinates as float32, x and y of every point in turn, from -1 to 1."""
    labels = traitlets.Bytes().tag(sync=True)
    """Class number of every point, as uint32."""
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Class number -> class."""
    suspects = traitlets.Bytes().tag(sync=True)
    """0 for a label that is not suspect, 1 for a suspect one, 2 for an unknown one; empty: no scores are given."""
    colour = traitlets.Enum(("class", "suspect"), "class").tag(sync=True)
    """What the colour of a point shows."""
    pictures = traitlets.Bool().tag(sync=True)
    """Whether the points have images."""
    selected = traitlets.Any().tag(
        sync=True,
        to_json=lambda rows, widget: np.asarray(rows, "<u4").tobytes(),
        from_json=lambda content, widget: np.frombuffer(content, "<u4").astype(np.int64),
    )
    """Indices of the selected points, ascending. Set it to select from Python; `observe` it to follow the selection."""

    def __init__(
        self,
        z: Any,
        y: Any,
        paths: Sequence[str | os.PathLike] | None = None,
        *,
        score: Any = None,
        method: str = "pca",
    ):
        if method not in MAP_METHODS:
            raise LikewiseError(
                f"MapWidget: method must be one of {', '.join(MAP_METHODS)}, got {method!r}{nearest_name(method, MAP_METHODS)}"
            )
        items = from_arrays(z, y, "MapWidget")
        if len(items) > MAX_POINTS:
            raise LikewiseError(
                f"MapWidget: z must have at most {MAX_POINTS} rows, got {len(items)}; pass a part, such as every tenth row"
            )
        self._paths = None if paths is None else check_paths(paths, len(items))
        states = None if score is None else score_states(score, len(items))
        assert items.x is not None
        flat = MAP_METHODS[method](torch.as_tensor(np.array(items.x, dtype=np.float32)))
        self._count = len(items)
        super().__init__(
            points=fit_square(flat).astype("<f4").tobytes(), labels=items.y.astype("<u4").tobytes(),
            names=list(items.class_name), suspects=b"" if states is None else states.tobytes(),
            colour="class" if states is None else "suspect", pictures=paths is not None,
            selected=np.zeros(0, np.int64),
        )  # fmt: skip
        self.on_msg(self.answer)

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> Int[np.ndarray, "M"]:
        """Return selected indices in ascending order, each once; raise unless all are points of the map."""
        given = as_array(proposal["value"])
        if given.size and (given.ndim != 1 or given.dtype.kind not in "iu"):
            raise LikewiseError(
                f"MapWidget: selected must be a list of indices, got {given.dtype} {given.shape}; use np.flatnonzero for a mask"
            )
        rows = np.unique(given.astype(np.int64))
        if len(rows) and (rows[0] < 0 or rows[-1] >= self._count):
            raise LikewiseError(
                f"MapWidget: selected must be indices from 0 to {self._count - 1}, got {rows[0]} to {rows[-1]}; select fewer"
            )
        return rows

    def load_image(self, row: int) -> Image.Image:
        """Return the image of a point."""
        if self._paths is None or not 0 <= row < len(self._paths):
            raise LikewiseError(f"MapWidget: point {row} has no image; pass paths, one file per point")
        return read_image(self._paths[row])

    def answer(self, widget: Any, content: Any, buffers: Any) -> None:
        """Send the image that the view requests by the index of its point, or the reason why there is none.

        So no path comes from the browser, and no image is stored in the notebook's file. Other messages are ignored.
        """
        row = content.get("row") if isinstance(content, dict) else None
        if not isinstance(row, int) or isinstance(row, bool):
            return
        try:
            self.send({"image": row, "error": ""}, [as_jpeg(self.load_image(row), IMAGE_SIDE)])
        except LikewiseError as error:
            self.send({"image": row, "error": str(error)})


def check_paths(paths: Sequence[str | os.PathLike], count: int) -> list[str]:
    """Return the paths as texts; raise unless there is one per point."""
    if isinstance(paths, str | os.PathLike):
        raise LikewiseError(f"MapWidget: paths must be a list of {count} files, got one path; pass a path per row of z")
    found = [os.path.expanduser(path) for path in paths]
    if len(found) != count:
        raise LikewiseError(
            f"MapWidget: paths must be a list of {count} files, got {len(found)}; pass a path per row of z"
        )
    return [os.fspath(path) for path in found]


def score_states(score: Any, count: int) -> UInt8[np.ndarray, "N"]:
    """Return 0 for a label that is not suspect, 1 for a suspect one, 2 for an unknown one."""
    found = as_array(score)
    if found.shape != (count,) or found.dtype.kind != "f":
        raise LikewiseError(
            f"MapWidget: score must be {count} numbers from 0 to 1, got {found.dtype} {found.shape}; "
            "pass likewise.audit_labels(z, y).score"
        )
    with np.errstate(invalid="ignore"):
        states = (found < SUSPECT_SCORE_THRESHOLD).astype(np.uint8)
    states[np.isnan(found)] = 2
    return states


def fit_square(flat: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Return the points moved and scaled, both axes alike, so that they fill the square from -1 to 1."""
    low, high = flat.min(0), flat.max(0)
    return (flat - (low + high) / 2) / max(float((high - low).max()) / 2, 1e-12)
