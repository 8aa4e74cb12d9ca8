"""Thumbnails of samples, read by several threads. Broken images are counted and left out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from likewise.core.progress import bar
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
