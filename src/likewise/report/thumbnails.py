"""Small pictures of samples, read by a few threads; broken ones are counted, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from likewise.data.images import BadImage, image_of
from likewise.io.progress import bar
from likewise.types import Items

SIDE = 128
"""Of the longer side of a picture in a page, in pixels."""

THREADS = 4


def read_small(
    items: Items, rows: Sequence[int], *, side: int = SIDE, title: str = "read pictures", quiet: bool = False
) -> tuple[dict[int, Image.Image], str]:
    """The pictures of these rows, shrunk, and what is wrong with the first that cannot be read ("": nothing)."""
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
    with bar(title, len(rows), quiet=quiet) as shown, ThreadPoolExecutor(THREADS) as threads:
        for row, image in zip(rows, threads.map(read, map(int, rows))):
            shown.advance()
            if isinstance(image, str):
                bad.append(image)
            else:
                found[int(row)] = image
    return found, f"{len(bad)} of {len(rows)} pictures cannot be read (first: {bad[0]})" if bad else ""
