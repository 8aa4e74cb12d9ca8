"""Blank, truncated and unreadable images, found by their pixels."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Int
from PIL import Image

from likewise.core.types import Items
from likewise.curate.audit.find_copies import load_image
from likewise.data.images import file_of

BLANK_SIDE_PIXELS = 64
"""Side to which an image is reduced before its levels are compared, so that JPEG noise does not count."""
MAX_BLANK_LEVELS = 3.0
"""Largest standard deviation of a colour channel of a blank image, in levels of 255."""
READ_THREADS = 8
"""Threads that read images."""


def blank_reason(image: Image.Image | None) -> str | None:
    """Return why an image shows nothing: "unreadable image", "blank image" or "half blank image"; None if it shows something.

    An image is half blank if all rows of its lower half are blank, as in a truncated file that a reader has filled up.
    """
    if image is None:
        return "unreadable image"
    small = np.asarray(
        image.convert("RGB").resize((BLANK_SIDE_PIXELS, BLANK_SIDE_PIXELS), Image.Resampling.BOX), np.float64
    )
    if is_blank(small):
        return "blank image"
    return "half blank image" if is_blank(small[BLANK_SIDE_PIXELS // 2 :], exact=True) else None


def is_blank(levels: np.ndarray, exact: bool = False) -> bool:
    """Return whether pixels (rows, columns, channels) are nearly constant, or, if `exact`, equal."""
    return bool(levels.std((0, 1)).max() <= (0 if exact else MAX_BLANK_LEVELS))


def blank_images(image: Callable[[int], Image.Image | None], count: int) -> dict[int, str]:
    """Return the reason of every sample that shows nothing.

    Args:
        image: returns the image of a sample, or None if it cannot be read; called from threads.
        count: number of samples.
    """
    with ThreadPoolExecutor(READ_THREADS) as pool:
        reasons = pool.map(lambda row: blank_reason(image(row)), range(count))
        return {row: reason for row, reason in enumerate(reasons) if reason is not None}


def blank_rows(items: Items, rows: Int[np.ndarray, "N"]) -> dict[int, str]:
    """Return the reason of every row whose image is blank or unreadable; a sample whose file is missing is left out.

    A half blank image is not among them: it may show an object in its upper half.
    """
    there = [] if items.path is None else [row for row in rows.tolist() if os.path.exists(file_of(items, row))]
    found = blank_images(lambda place: load_image(items, there[place]), len(there))
    return {there[place]: reason for place, reason in found.items() if reason != "half blank image"}
