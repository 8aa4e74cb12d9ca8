"""Thumbnails of samples: read by several threads, and drawn into sprite sheets, many small images in few large ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from PIL import Image

from likewise.core.progress import bar
from likewise.core.render.html import data_uri, shrunk
from likewise.core.types import Items
from likewise.data.images import BadImage, image_of

THUMBNAIL_SIDE = 128
"""Length of the longer side of an image on the page, in pixels."""

READER_THREADS = 4
"""Threads that decode images."""


def read_thumbnails(
    items: Items, rows: Sequence[int], *, side: int = THUMBNAIL_SIDE, title: str = "read images", quiet: bool = False
) -> tuple[dict[int, Image.Image], str]:
    """Return the thumbnails by row, and a message on the images that cannot be read ("": all were read).

    Args:
        side: largest length of the longer side, in pixels.
        title: title of the progress bar.
    """
    if items.path is None or not len(rows):
        return {}, ""

    def read(row: int) -> Image.Image | str:
        try:
            image = image_of(items, row)
            image.thumbnail((side, side))
            return image
        except BadImage as error:
            return str(error)

    found, bad = {}, []
    with bar(title, len(rows), quiet=quiet) as shown, ThreadPoolExecutor(READER_THREADS) as threads:
        for row, image in zip(rows, threads.map(read, map(int, rows))):
            shown.advance()
            if isinstance(image, str):
                bad.append(image)
            else:
                found[int(row)] = image
    return found, f"{len(bad)} of {len(rows)} images cannot be read (first: {bad[0]})" if bad else ""


IMAGE_SIDES = (128, 112, 96, 80, 64, 48, 32)
"""Possible lengths of the longer side of an image, in pixels; the largest one with which all images fit is used."""

SHEET_SIDE = 10
"""Images in a row of a sheet, and rows in a sheet."""


class Sheets(NamedTuple):
    """Sprite sheets. Image i is in sheet i // across**2; cells of `side` pixels are filled row by row; `size[i]`: width, height.

    There may be fewer sizes than images: the last images are left out if not all of them fit.
    """

    side: int
    across: int
    rows: int
    size: list[tuple[int, int]]
    data: list[str]  # data URIs


def make_sheets(images: Sequence[Image.Image], room: int) -> Sheets:
    """Return sheets of all images, as large as fit into `room` characters.

    If even the smallest images do not fit, the sheets hold the first images only.
    """
    room = max(room, 0)
    some = images[:: math.ceil(len(images) / SHEET_SIDE**2) or 1]  # a sample, to estimate the total size
    share = 1.05 * len(images) / max(1, len(some))
    side = next(
        (side for side in IMAGE_SIDES if share * total_length(draw_sheets(some, side)) <= room), IMAGE_SIDES[-1]
    )
    while total_length(made := draw_sheets(images, side)) > room:
        if side > IMAGE_SIDES[-1]:
            side = IMAGE_SIDES[IMAGE_SIDES.index(side) + 1]
        else:
            images = images[: int(len(images) * min(0.95, room / total_length(made)))]
    return made


def total_length(made: Sheets) -> int:
    """Return the number of characters of all data URIs."""
    return sum(map(len, made.data))


def draw_sheets(images: Sequence[Image.Image], side: int) -> Sheets:
    """Return sheets of all images, shrunk to `side` pixels."""
    rows, whole = min(SHEET_SIDE, math.ceil(len(images) / SHEET_SIDE)), SHEET_SIDE**2
    small = [shrunk(image.convert("RGB"), side) for image in images]
    data = []
    for first in range(0, len(small), whole):
        sheet = Image.new("RGB", (side * SHEET_SIDE, side * rows), "#808080")
        for place, image in enumerate(small[first : first + whole]):
            sheet.paste(image, (place % SHEET_SIDE * side, place // SHEET_SIDE * side))
        data.append(data_uri(sheet, "WEBP", quality=74, method=2))
    return Sheets(side, SHEET_SIDE, rows, [image.size for image in small], data)
