"""Notebook views of results: small HTML tables of escaped text."""

from __future__ import annotations

import base64
import functools
import io
import os
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

MAX_TABLE_LINES = 40
"""Lines of a table that are shown; a note below the table counts the rest."""

THUMBNAIL_COUNT = 8
"""Images that the view of a data set shows."""

THUMBNAIL_SIDE = 72
"""Longer side of a shown image, in pixels."""

MAX_DECODED_PIXELS = 30_000_000
"""Images with more pixels are not decoded, because a notebook view must be quick."""

BORDER_STYLE = "1px solid rgba(128,128,128,.35)"
NOTE_STYLE = "opacity:.75;font-size:12px;line-height:1.4;max-width:72em"
NUMBER_STARTS = "0123456789+-\N{MINUS SIGN}."
"""First characters of a cell that holds a number."""


def view(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a `_repr_html_` method that never raises: if `write` fails, the view shows the error."""

    @functools.wraps(write)
    def repr_html(self) -> str:
        try:
            return write(self).encode("utf-8", "backslashreplace").decode()  # names may hold any bytes
        except Exception as error:
            reason = str(error) or type(error).__name__
            return f"<div>{escape(type(self).__name__)} cannot be shown: {escape(reason)}</div>"

    return repr_html


def table(title: str, heads: Sequence[str], lines: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Return an HTML table. Columns of numbers are aligned to the right.

    Args:
        heads: headings of the columns; empty: no heading line, and the first column names the values of the second.
        lines: cells of every line; only the first `MAX_TABLE_LINES` lines are shown.
        notes: sentences below the table.
    """
    lines = [[str(cell) for cell in line] for line in lines]
    numbers = [heads and all(cell[:1] in NUMBER_STARTS for cell in column) for column in zip(*lines, strict=True)]
    sides = ["right" if number else "left" for number in numbers] or ["left"] * len(heads)
    top = "".join(_cell("th", head, side, BORDER_STYLE) for head, side in zip(heads, sides))
    top = top and f"<thead><tr>{top}</tr></thead>"
    body = "".join(
        f"<tr>{''.join(_cell('td', cell, side) for cell, side in zip(line, sides, strict=True))}</tr>"
        for line in lines[:MAX_TABLE_LINES]
    )
    more = [f"and {len(lines) - MAX_TABLE_LINES} more lines"] if len(lines) > MAX_TABLE_LINES else []
    below = "".join(f'<div style="{NOTE_STYLE}">{escape(note)}</div>' for note in (*more, *notes))
    return (
        f'<div style="overflow-x:auto;margin:4px 0 8px"><b>{escape(title)}</b>'
        '<table style="border-collapse:collapse;border:none;margin:4px 0">'
        f"{top}<tbody>{body}</tbody></table>{below}</div>"
    )


def _cell(kind: str, text: str, side: str, rule: str = "none") -> str:
    """Return a cell of a table: tag (`kind`), alignment (`side`) and CSS of the bottom border (`rule`)."""
    whole = ";white-space:nowrap" if side == "right" else ""
    style = f"text-align:{side};padding:2px 12px 2px 4px;vertical-align:top;border:none;border-bottom:{rule}{whole}"
    return f'<{kind} style="{style}">{escape(text)}</{kind}>'


def image_strip(images: Sequence[tuple[str, str]]) -> str:
    """Return small images side by side, given as (data URI, caption); an empty frame for an empty URI."""
    tile = f"display:inline-block;width:{THUMBNAIL_SIDE}px;margin:0 8px 8px 0;vertical-align:top"
    frame = f"display:block;width:{THUMBNAIL_SIDE}px;height:{THUMBNAIL_SIDE}px;margin:0;object-fit:contain"
    tiles = []
    for uri, name in images:
        empty = f'<span style="{frame};border:{BORDER_STYLE};box-sizing:border-box"></span>'
        shown = f'<img src="{uri}" alt="" style="{frame}">' if uri else empty
        words = escape(name).replace("_", "_<wbr>")
        tiles.append(f'<div style="{tile}">{shown}<div style="overflow-wrap:anywhere;{NOTE_STYLE}">{words}</div></div>')
    return f"<div>{''.join(tiles)}</div>"


def thumbnail(file: str, box: Float[np.ndarray, "4"] | None = None) -> str:
    """Return a small version of an image file as a data URI; "" if the file cannot be read or is too large to decode quickly.

    Args:
        box: left, top, right, bottom in pixels; None or NaN: the whole image.
    """
    from PIL import ImageOps

    from likewise.core.image_files import open_image

    try:
        with open_image(file) as image:
            if image.width * image.height > MAX_DECODED_PIXELS:
                return ""
            if box is None or np.isnan(box).all():
                image.draft("RGB", (2 * THUMBNAIL_SIDE, 2 * THUMBNAIL_SIDE))  # decode a JPEG at reduced size
                small = ImageOps.exif_transpose(image)
            else:
                small = ImageOps.exif_transpose(image).crop(tuple(round(float(edge)) for edge in box))  # pyright: ignore[reportArgumentType]
            small = small.convert("RGBA")
            small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            content = io.BytesIO()
            small.save(content, "PNG")
    except Exception:  # a broken image must not hide the other images
        return ""
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def items_html(items) -> str:
    """Return the view of a data set: its counts, and some of its images."""
    splits = [] if items.split is None else zip(*np.unique(np.asarray(items.split, dtype=str), return_counts=True))
    lines = [("samples", len(items)), ("classes", items.classes)]
    if items.label_sets is not None:
        lines.append(("labels", f"{len(items.label_name)}, of which a class is a set"))
    if items.split is not None:
        lines.append(("splits", ", ".join(f"{count} {split}" for split, count in splits if split)))
    lines += [("features", f"{items.x.shape[1]} dimensions")] if items.x is not None else []
    if items.y_clean is not None:
        lines.append(("wrong labels", int((items.y != items.y_clean).sum())))
    optional = ("query", "gallery", "group", "camera", "junk", "box", "weight", "taxonomy")
    lines += [("also", ", ".join(has))] if (has := [n for n in optional if getattr(items, n) is not None]) else []
    shown = table(f"{items.name}: a data set", (), lines)
    if items.path is None or not len(items):
        return shown
    rows = np.unique(np.linspace(0, len(items) - 1, THUMBNAIL_COUNT).astype(int))
    boxes = [None if items.box is None else items.box[row] for row in rows]
    files = [os.path.join(items.root, items.path[row]) for row in rows]
    names = [items.class_name[items.y[row]] for row in rows]
    return shown + image_strip(
        [(thumbnail(file, box), name) for file, box, name in zip(files, boxes, names, strict=True)]
    )


def embedded_html(e) -> str:
    """Return the view of embeddings: their number and dimension, and the first values of the first rows."""
    rows, dim = e.z.shape
    lines = [
        [int(e.row[n]), int(e.y[n]), *(f"{float(v):.3f}" for v in e.z[n, :6]), "…" if dim > 6 else ""]
        for n in range(min(5, rows))
    ]
    also = [words for name, words in (("e", "raw embeddings"), ("f", "features")) if getattr(e, name) is not None]
    notes = [f"and {rows - 5} more"] * (rows > 5) + [f"also stored: {' and '.join(also)}"] * bool(also)
    heads = ("row", "label", *map(str, range(min(6, dim))), "")
    return table(f"{rows} embeddings of {dim} dimensions", heads, lines, notes)


def scores_html(scores) -> str:
    """Return the view of scores: the mean of every metric."""
    lines, queries = [], len(scores.query)
    for name, values in scores.each.items():
        known = values[~np.isnan(values)]
        lines.append((name, f"{known.mean():.4f}" if len(known) else "undefined", len(known)))
    return table(f"scores of {queries} queries", ("metric", "mean", "queries scored"), lines)
