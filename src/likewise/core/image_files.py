"""Image files: the suffixes and formats that likewise reads, the function that opens them, and small copies as JPEG."""

from __future__ import annotations

import io
import os
from functools import cache

from PIL import Image

FORMAT_OF = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".jfif": "JPEG", ".jp2": "JPEG2000", ".png": "PNG", ".bmp": "BMP", ".gif": "GIF",
    ".webp": "WEBP", ".avif": "AVIF", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM",
}  # fmt: skip
"""File suffix -> Pillow format, for every suffix that likewise reads as an image."""

IMAGE_SUFFIXES = frozenset(FORMAT_OF)


@cache
def formats() -> tuple[str, ...]:
    """Return the formats of `FORMAT_OF` that the installed Pillow can read; AVIF depends on the build of Pillow."""
    Image.init()
    return tuple(name for name in dict.fromkeys(FORMAT_OF.values()) if name in Image.OPEN)


def open_image(file: str | os.PathLike | io.BytesIO) -> Image.Image:
    """Open an image file with Pillow, as one of `formats()`. The content decides the format, not the suffix.

    Without this limit, Pillow tries every format that it knows, and starts Ghostscript for a `.png` that holds PostScript.
    """
    return Image.open(file, formats=formats())


def as_jpeg(image: Image.Image, side: int) -> bytes:
    """Return an image as JPEG, with no side longer than `side` pixels. The image itself is shrunk, which saves a copy."""
    out = io.BytesIO()
    image.thumbnail((side, side))
    image.convert("RGB").save(out, "JPEG", quality=90)
    return out.getvalue()
