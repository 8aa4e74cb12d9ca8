"""Decode the images of items in threads, in order; and compute the size of the decoded pixels from the file headers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from likewise.core.image_files import open_image
from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.data.crop_resize import check_size, shrink
from likewise.data.images import crop, file_of, image_of, upright

PREFETCH_ITEMS = 64
"""Images decoded ahead of their use, which bounds memory."""


def decoded(
    items: Items, side: int | None, rows: range, workers: int = -1, quiet: bool = False
) -> Generator[UInt8[np.ndarray, "h w 3"], None, None]:
    """Yield the decoded images of rows, in order. Threads suffice: Pillow releases the GIL while it decodes.

    Args:
        side: see `pixels_of`.
        workers: number of threads; -1: the default of ThreadPoolExecutor, by the number of cores.
    """
    pool, ahead = ThreadPoolExecutor(None if workers < 0 else max(1, workers)), deque()
    try:
        with bar("decode", rows.stop, start=rows.start, quiet=quiet) as progress:
            for row in (*rows, *[None] * min(PREFETCH_ITEMS, len(rows))):  # the None at the end drain the queue
                if row is not None:
                    ahead.append(pool.submit(pixels_of, items, row, side))
                if row is None or len(ahead) > PREFETCH_ITEMS:
                    yield ahead.popleft().result()
                    progress.advance()
    finally:
        pool.shutdown(cancel_futures=True)


def pixels_of(items: Items, row: int, side: int | None) -> UInt8[np.ndarray, "h w 3"]:
    """Return the pixels of a row's image, shrunk to the short side `side` if its short side is longer."""
    return np.asarray(shrink(image_of(items, row), side))


def decoded_bytes(items: Items, side: int | None) -> int:
    """Return the bytes of all decoded images. Only headers are read, except in formats whose headers do not suffice."""
    check_has_images(items, side)
    with ThreadPoolExecutor() as pool:
        return 3 * sum(pool.map(partial(_area, items, side), range(len(items))))


def check_has_images(items: Items, side: int | None) -> None:
    """Raise unless the data holds images and the side is a number of pixels."""
    if items.x is not None or not items.path:
        raise LikewiseError(f"pixels: the data must be images, but {items.name} has none; use data with images")
    if side is not None:
        check_size(side)


def _area(items: Items, side: int | None, row: int) -> int:
    image = _outline(file_of(items, row))
    if image is None:
        image = image_of(items, row)
    elif items.box is not None:
        image = crop(image, items.box[row], file_of(items, row))
    short, long = sorted(image.size)
    return short * long if side is None or short <= side else side * (side * long // short)


def _outline(file: str) -> Image.Image | None:
    """Return a blank image with the size of the decoded image after EXIF rotation; None if only decoding can show it."""
    try:
        with open_image(file) as image:
            if image.format == "PNG":  # its EXIF rotation may come after the pixels
                content = Path(file).read_bytes()
                sure = not any(word in content for word in (b"eXIf", b"type exif", b"adobe.xmp"))
            else:
                sure = image.format in ("JPEG", "MPO", "WEBP")
            if sure:
                blank = Image.new("1", image.size)
                blank.info = image.info
                return upright(blank)
    except Exception:  # decoding raises an error that names the problem
        pass
    return None
