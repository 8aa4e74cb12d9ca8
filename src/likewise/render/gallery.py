"""The retrieval gallery: every line a query and its nearest neighbours, framed green where right and red where wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

TILE, GAP, FRAME_PIXELS, CAPTION, EDGE = 112, 16, 5, 34, 28
INK, SOFT, PAPER, RIGHT, WRONG, NEUTRAL = "#1d2430", "#6b7585", "#ffffff", "#1f9d57", "#d8413f", "#3b4a63"


@dataclass(frozen=True)
class Tile:
    """A picture, two short lines below it, and whether it is right (None: not judged)."""

    image: Image.Image
    caption: str
    detail: str = ""
    right: bool | None = None


def draw_gallery(lines: Sequence[tuple[Tile, Sequence[Tile]]], title: str, subtitle: str = "") -> Image.Image:
    """One picture of queries (left) and their answers, nearest first."""
    columns = 1 + max(len(answers) for _, answers in lines)
    head = 74 if subtitle else 54
    width = 2 * EDGE + columns * (TILE + GAP) + GAP
    height = head + len(lines) * (TILE + CAPTION + GAP) + EDGE
    page = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((EDGE, 18), fit(title, font_of(19, True), width - 2 * EDGE), font=font_of(19, True), fill=INK)
    if subtitle:
        draw.text((EDGE, 44), fit(subtitle, font_of(12), width - 2 * EDGE), font=font_of(12), fill=SOFT)
    for number, (query, answers) in enumerate(lines):
        top = head + number * (TILE + CAPTION + GAP)
        _place(page, draw, query, EDGE, top)
        rule = EDGE + TILE + GAP
        draw.line([(rule, top), (rule, top + TILE)], fill="#d5dae2", width=1)
        for place, answer in enumerate(answers):
            _place(page, draw, answer, EDGE + (TILE + GAP) * (place + 1) + GAP, top)
    return page


def _place(page: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int) -> None:
    colour = NEUTRAL if tile.right is None else RIGHT if tile.right else WRONG
    draw.rounded_rectangle([left, top, left + TILE - 1, top + TILE - 1], 7, fill=colour)
    inner = TILE - 2 * FRAME_PIXELS
    small = min(tile.image.size) < inner  # enlarged characters stay crisp, photographs smooth
    scale = max(inner / tile.image.width, inner / tile.image.height)
    size = (max(inner, round(tile.image.width * scale)), max(inner, round(tile.image.height * scale)))
    image = tile.image.resize(size, Image.Resampling.BICUBIC if small else Image.Resampling.LANCZOS)
    x, y = (size[0] - inner) // 2, (size[1] - inner) // 2
    page.paste(image.crop((x, y, x + inner, y + inner)), (left + FRAME_PIXELS, top + FRAME_PIXELS))
    draw.text((left + 2, top + TILE + 4), fit(tile.caption, font_of(12), TILE), font=font_of(12), fill=INK)
    draw.text((left + 2, top + TILE + 19), fit(tile.detail, font_of(10), TILE), font=font_of(10), fill=SOFT)


def fit(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """As much of a text as there is room for, on one line."""
    text = one_line(text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def one_line(text: str) -> str:
    """Without line breaks and other characters that cannot be drawn."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def font_of(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)
