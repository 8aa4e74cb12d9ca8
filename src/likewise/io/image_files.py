"""Picture files: the suffixes and formats that likewise reads, and the one way to open them."""

from __future__ import annotations

import io
import os
from functools import cache

from PIL import Image

FORMAT_OF = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".jfif": "JPEG", ".jp2": "JPEG2000", ".png": "PNG", ".bmp": "BMP", ".gif": "GIF",
    ".webp": "WEBP", ".avif": "AVIF", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM",
}  # fmt: skip
"""Pillow's format of every suffix that counts as a picture."""

SUFFIXES = frozenset(FORMAT_OF)


@cache
def formats() -> tuple[str, ...]:
    """Return the formats of `FORMAT_OF` that the installed Pillow reads (AVIF needs a build with it)."""
    Image.init()
    return tuple(name for name in dict.fromkeys(FORMAT_OF.values()) if name in Image.OPEN)


def open_picture(file: str | os.PathLike | io.BytesIO) -> Image.Image:
    """Open a picture with Pillow in one of `formats()`, which its bytes decide and not its suffix.

    Pillow by itself tries every format that it knows, and starts Ghostscript for a `.png` that holds PostScript.
    """
    return Image.open(file, formats=formats())
