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

LINES = 40
"""Of a table; how many more there are is said below it."""

THUMBS, SIDE = 8, 72
"""Pictures that a data set shows, and their longer side in pixels."""

LARGE = 30_000_000
"""Pixels beyond which a picture is not decoded: showing something must not take long."""

RULE = "1px solid rgba(128,128,128,.35)"
SOFT = "opacity:.75;font-size:12px;line-height:1.4;max-width:72em"
NUMBER = "0123456789+-\N{MINUS SIGN}."


def view(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """A `_repr_html_` that never raises: what is wrong stands where the table would."""

    @functools.wraps(write)
    def shown(self) -> str:
        try:
            return write(self)
        except Exception as error:
            why = str(error) or type(error).__name__
            return f"<div>{escape(type(self).__name__)} cannot be shown: {escape(why)}</div>"

    return shown


def table(title: str, heads: Sequence[str], lines: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Texts in lines and columns; columns of numbers stand to the right. Without heads, the first column names the second."""
    lines = [[str(cell) for cell in line] for line in lines]
    numbers = [heads and all(cell[:1] in NUMBER for cell in column) for column in zip(*lines, strict=True)]
    sides = ["right" if number else "left" for number in numbers] or ["left"] * len(heads)
    top = "".join(_cell("th", head, side, RULE) for head, side in zip(heads, sides))
    top = top and f"<thead><tr>{top}</tr></thead>"
    body = "".join(
        f"<tr>{''.join(_cell('td', cell, side) for cell, side in zip(line, sides, strict=True))}</tr>"
        for line in lines[:LINES]
    )
    more = [f"and {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    below = "".join(f'<div style="{SOFT}">{escape(note)}</div>' for note in (*more, *notes))
    return (
        f'<div style="overflow-x:auto;margin:4px 0 8px"><b>{escape(title)}</b>'
        '<table style="border-collapse:collapse;border:none;margin:4px 0">'
        f"{top}<tbody>{body}</tbody></table>{below}</div>"
    )


def _cell(kind: str, text: str, side: str, rule: str = "none") -> str:
    whole = ";white-space:nowrap" if side == "right" else ""
    style = f"text-align:{side};padding:2px 12px 2px 4px;vertical-align:top;border:none;border-bottom:{rule}{whole}"
    return f'<{kind} style="{style}">{escape(text)}</{kind}>'


def strip(pictures: Sequence[tuple[str, str]]) -> str:
    """Small pictures side by side, as (data URI, caption); an empty frame where there is no URI."""
    tile = f"display:inline-block;width:{SIDE}px;margin:0 8px 8px 0;vertical-align:top"
    frame = f"display:block;width:{SIDE}px;height:{SIDE}px;margin:0;object-fit:contain"
    tiles = []
    for uri, name in pictures:
        empty = f'<span style="{frame};border:{RULE};box-sizing:border-box"></span>'
        shown = f'<img src="{uri}" alt="" style="{frame}">' if uri else empty
        words = escape(name).replace("_", "_<wbr>")
        tiles.append(f'<div style="{tile}">{shown}<div style="overflow-wrap:anywhere;{SOFT}">{words}</div></div>')
    return f"<div>{''.join(tiles)}</div>"


def thumbnail(file: str, box: Float[np.ndarray, "4"] | None = None) -> str:
    """A small picture as a data URI; "" where the file cannot be shown, or not at once."""
    from PIL import ImageOps

    from likewise.io.image_files import open_picture

    try:
        with open_picture(file) as image:
            if image.width * image.height > LARGE:
                return ""
            if box is None or np.isnan(box).all():
                image.draft("RGB", (2 * SIDE, 2 * SIDE))  # a JPEG is decoded no larger than needed
                seen = ImageOps.exif_transpose(image)
            else:
                seen = ImageOps.exif_transpose(image).crop(tuple(round(float(edge)) for edge in box))  # pyright: ignore[reportArgumentType]
            seen = seen.convert("RGBA")
            seen.thumbnail((SIDE, SIDE))
            content = io.BytesIO()
            seen.save(content, "PNG")
    except Exception:  # a broken picture is no reason not to show the others
        return ""
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def items_html(items) -> str:
    """A data set: how many of what, and some of its pictures."""
    parts = [] if items.split is None else zip(*np.unique(np.asarray(items.split, dtype=str), return_counts=True))
    lines = [("samples", len(items)), ("classes", items.classes)]
    lines += (
        [("parts", ", ".join(f"{count} {part}" for part, count in parts if part))] if items.split is not None else []
    )
    lines += [("features", f"{items.x.shape[1]} numbers")] if items.x is not None else []
    if items.y_clean is not None:
        lines.append(("spoiled labels", int((items.y != items.y_clean).sum())))
    optional = ("query", "gallery", "group", "box", "weight", "taxonomy")
    lines += [("also", ", ".join(has))] if (has := [n for n in optional if getattr(items, n) is not None]) else []
    shown = table(f"{items.name}: a data set", (), lines)
    if items.path is None or not len(items):
        return shown
    rows = np.unique(np.linspace(0, len(items) - 1, THUMBS).astype(int))
    boxes = [None if items.box is None else items.box[row] for row in rows]
    files = [os.path.join(items.root, items.path[row]) for row in rows]
    names = [items.class_name[items.y[row]] for row in rows]
    return shown + strip([(thumbnail(file, box), name) for file, box, name in zip(files, boxes, names, strict=True)])


def embedded_html(e) -> str:
    """Embeddings: their number and width, and how the first ones begin."""
    rows, wide = e.z.shape
    lines = [
        [int(e.row[n]), int(e.y[n]), *(f"{float(v):.3f}" for v in e.z[n, :6]), "…" if wide > 6 else ""]
        for n in range(min(5, rows))
    ]
    also = [
        words for name, words in (("e", "those before the norm"), ("f", "features")) if getattr(e, name) is not None
    ]
    notes = [f"and {rows - 5} more"] * (rows > 5) + [f"beside them: {' and '.join(also)}"] * bool(also)
    heads = ("row", "label", *map(str, range(min(6, wide))), "")
    return table(f"{rows} embeddings of {wide} numbers", heads, lines, notes)


def scores_html(scores) -> str:
    """Metrics per query: their means."""
    lines, queries = [], len(scores.query)
    for name, values in scores.each.items():
        known = values[~np.isnan(values)]
        lines.append((name, f"{known.mean():.4f}" if len(known) else "undefined", len(known)))
    return table(f"scores of {queries} queries", ("metric", "mean", "queries scored"), lines)
