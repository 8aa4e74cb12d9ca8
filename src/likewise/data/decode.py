"""Pictures of items as plain pixels, decoded by threads, in order; and how many bytes that will be, from their headers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from likewise.data.crop_resize import check_size, shrink
from likewise.data.images import cut, file_of, image_of, upright
from likewise.io.image_files import open_picture
from likewise.io.progress import bar
from likewise.types import Items, LikewiseError

AHEAD = 64
"""Pictures decoded before they are asked for, which bounds memory."""


def decoded(
    items: Items, side: int | None, rows: range, workers: int = -1, quiet: bool = False
) -> Generator[UInt8[np.ndarray, "h w 3"], None, None]:
    """The pictures of rows, in order. Pillow lets other threads run while it decodes, and these need not copy pixels.

    Args:
        side: see `pixels_of`.
        workers: threads; -1: as many as the cores can use.
    """
    pool, ahead = ThreadPoolExecutor(None if workers < 0 else max(1, workers)), deque()
    try:
        with bar("decode", rows.stop, start=rows.start, quiet=quiet) as progress:
            for row in (*rows, *[None] * min(AHEAD, len(rows))):  # at the end, what is left
                if row is not None:
                    ahead.append(pool.submit(pixels_of, items, row, side))
                if row is None or len(ahead) > AHEAD:
                    yield ahead.popleft().result()
                    progress.advance()
    finally:
        pool.shutdown(cancel_futures=True)


def pixels_of(items: Items, row: int, side: int | None) -> UInt8[np.ndarray, "h w 3"]:
    """The picture of a row; where its short side is longer than `side`, shrunk to that."""
    return np.asarray(shrink(image_of(items, row), side))


def decoded_bytes(items: Items, side: int | None) -> int:
    """What the decoded pictures take. Only headers are read, save in formats where these do not tell."""
    check_pictures(items, side)
    with ThreadPoolExecutor() as pool:
        return 3 * sum(pool.map(partial(_area, items, side), range(len(items))))


def check_pictures(items: Items, side: int | None) -> None:
    """Raise unless the data holds pictures and the side is one in pixels."""
    if items.x is not None or not items.path:
        raise LikewiseError(f"pixels: the data must be pictures, and {items.name} has none; leave it out")
    if side is not None:
        check_size(side)


def _area(items: Items, side: int | None, row: int) -> int:
    image = _outline(file_of(items, row))
    if image is None:
        image = image_of(items, row)
    elif items.box is not None:
        image = cut(image, items.box[row], file_of(items, row))
    short, long = sorted(image.size)
    return short * long if side is None or short <= side else side * (side * long // short)


def _outline(file: str) -> Image.Image | None:
    """An empty picture of this one's size, turned as it will be. None: only decoding tells."""
    try:
        with open_picture(file) as image:
            if image.format == "PNG":  # which may say behind its pixels how they are turned
                content = Path(file).read_bytes()
                sure = not any(word in content for word in (b"eXIf", b"type exif", b"adobe.xmp"))
            else:
                sure = image.format in ("JPEG", "MPO", "WEBP")
            if sure:
                blank = Image.new("1", image.size)
                blank.info = image.info
                return upright(blank)
    except Exception:  # decoding says what is wrong
        pass
    return None
