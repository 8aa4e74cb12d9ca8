"""The retrieval gallery: each line shows a query and its nearest neighbours, framed green if right and red if wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

TILE_PIXELS, GAP_PIXELS, FRAME_PIXELS, CAPTION_PIXELS, EDGE_PIXELS = 112, 16, 5, 34, 28
"""Pixels: side of a tile, gap between tiles, width of a frame, height of a caption, margin of the figure."""

INK_COLOUR, SOFT_COLOUR, PAPER_COLOUR, RIGHT_COLOUR, WRONG_COLOUR, NEUTRAL_COLOUR = (
    "#1d2430",
    "#6b7585",
    "#ffffff",
    "#1f9d57",
    "#d8413f",
    "#3b4a63",
)
"""Colours of text, secondary text, background, right frames, wrong frames and frames of queries."""

TRACK_COLOUR = "#d5dae2"
"""Colour of the frame of a tile with a relevance, which its bar covers from the left."""


@dataclass(frozen=True)
class Tile:
    """An image, two short lines below it, and whether it is right (None: a query).

    A tile with a relevance has a bar of this length, 0 to 1, at its lower edge in place of the coloured frame.
    """

    image: Image.Image
    caption: str
    detail: str = ""
    right: bool | None = None
    relevance: float | None = None


def draw_gallery(lines: Sequence[tuple[Tile, Sequence[Tile]]], title: str, subtitle: str = "") -> Image.Image:
    """Return a figure with one line per query: the query on the left, then its neighbours, nearest first."""
    columns = 1 + max(len(neighbours) for _, neighbours in lines)
    head = 74 if subtitle else 54
    width = 2 * EDGE_PIXELS + columns * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS
    height = head + len(lines) * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + EDGE_PIXELS
    page = Image.new("RGB", (width, height), PAPER_COLOUR)
    draw = ImageDraw.Draw(page)
    draw.text(
        (EDGE_PIXELS, 18),
        fit(title, font_of(19, True), width - 2 * EDGE_PIXELS),
        font=font_of(19, True),
        fill=INK_COLOUR,
    )
    if subtitle:
        draw.text(
            (EDGE_PIXELS, 44), fit(subtitle, font_of(12), width - 2 * EDGE_PIXELS), font=font_of(12), fill=SOFT_COLOUR
        )
    for number, (query, neighbours) in enumerate(lines):
        top = head + number * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS)
        _place(page, draw, query, EDGE_PIXELS, top)
        rule = EDGE_PIXELS + TILE_PIXELS + GAP_PIXELS
        draw.line([(rule, top), (rule, top + TILE_PIXELS)], fill="#d5dae2", width=1)
        for place, neighbour in enumerate(neighbours):
            _place(page, draw, neighbour, EDGE_PIXELS + (TILE_PIXELS + GAP_PIXELS) * (place + 1) + GAP_PIXELS, top)
    return page


def _place(page: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int) -> None:
    colour = NEUTRAL_COLOUR if tile.right is None else RIGHT_COLOUR if tile.right else WRONG_COLOUR
    if tile.relevance is not None:
        colour = TRACK_COLOUR
    draw.rounded_rectangle([left, top, left + TILE_PIXELS - 1, top + TILE_PIXELS - 1], 7, fill=colour)
    inner = TILE_PIXELS - 2 * FRAME_PIXELS
    small = min(tile.image.size) < inner  # enlarged characters stay crisp, photographs smooth
    scale = max(inner / tile.image.width, inner / tile.image.height)
    size = (max(inner, round(tile.image.width * scale)), max(inner, round(tile.image.height * scale)))
    image = tile.image.resize(size, Image.Resampling.BICUBIC if small else Image.Resampling.LANCZOS)
    x, y = (size[0] - inner) // 2, (size[1] - inner) // 2
    page.paste(image.crop((x, y, x + inner, y + inner)), (left + FRAME_PIXELS, top + FRAME_PIXELS))
    if tile.relevance is not None:
        first, low = left + FRAME_PIXELS, top + TILE_PIXELS - FRAME_PIXELS
        length = round(inner * min(1.0, max(0.0, tile.relevance)))
        if length:
            draw.rectangle([first, low, first + length - 1, low + FRAME_PIXELS - 2], RIGHT_COLOUR)
    draw.text(
        (left + 2, top + TILE_PIXELS + 4),
        fit(tile.caption, font_of(12), TILE_PIXELS),
        font=font_of(12),
        fill=INK_COLOUR,
    )
    draw.text(
        (left + 2, top + TILE_PIXELS + 19),
        fit(tile.detail, font_of(10), TILE_PIXELS),
        font=font_of(10),
        fill=SOFT_COLOUR,
    )


def fit(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Return a text on one line, shortened with an ellipsis to `width` pixels."""
    text = one_line(text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def one_line(text: str) -> str:
    """Return a text with line breaks and other unprintable characters replaced by spaces, and undecodable bytes escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in text)


def font_of(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)
