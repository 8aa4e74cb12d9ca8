"""HTML pages: the Jinja environment of every template, and images as data URIs."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from PIL import Image

from likewise.core.render.gallery import one_line

TEMPLATES = Path(__file__).parent / "templates"
"""Folder of the templates, scripts and style sheets of all pages."""


def environment() -> Environment:
    """Return the Jinja environment of every HTML page, with the filters that format numbers and names."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "n": known(lambda value: f"{round(value):,}"),
        "pct": known(lambda share: "< 0.1%" if 0 < share < 0.001 else f"{share:.1%}"),
        "score": known(score_text),
        "signed": known(lambda value, digits=1: f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")),
        "name": breakable,
        "sentence": lambda text: text[:1].upper() + text[1:].rstrip(".") + ".",
        "points": lambda curve: " ".join(f"{52 + 450 * x:.1f},{350 - 330 * y:.1f}" for x, y in curve if y is not None),
    }
    return made


def known(write: Callable[..., str]) -> Callable[..., str]:
    """Return a filter that formats a number with `write`, and None, NaN and infinities as ""."""
    return lambda value, *how: "" if value is None or not np.isfinite(value) else write(value, *how)


def breakable(name: str) -> Markup:
    """Return a name on one line as HTML, with possible line breaks after _ and /."""
    return Markup("<wbr>").join(re.findall(r"[^_/]*[_/]|[^_/]+", one_line(name)))


def score_text(value: float) -> str:
    """Return a probability with three digits, and "< 0.001" for a smaller one that is not zero."""
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """Return the image with its longer side at most `side` pixels long."""
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS) if scale < 1 else image


def data_uri(image: Image.Image, kind: str, **options) -> str:
    """Return an image as a data URI, encoded by Pillow as `kind` ("JPEG", "WEBP") with its options."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(file.getvalue()).decode()
