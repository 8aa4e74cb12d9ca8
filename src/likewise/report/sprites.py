"""Many small pictures as few large ones, of a known size altogether: what a page holds in place of a file for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image

from likewise.render.html import data_uri, shrunk

SIDES = (128, 112, 96, 80, 64, 48, 32)
"""Longest sides that pictures may have, in pixels: the largest with which all of them fit."""

ACROSS = 10
"""Pictures in a row of a sheet, and rows in a sheet."""


class Sheets(NamedTuple):
    """Picture i stands in sheet i // across**2, in cells of `side` pixels from left to right and down, `size[i]` wide and high.

    There may be fewer sizes than pictures were given: those at the end found no room.
    """

    side: int
    across: int
    rows: int
    size: list[tuple[int, int]]
    data: list[str]  # data URIs


def sheets(pictures: Sequence[Image.Image], room: int) -> Sheets:
    """All pictures, as large as fits into `room` characters; where even the smallest are too many, the first ones."""
    room, some = (
        max(room, 0),
        pictures[:: math.ceil(len(pictures) / ACROSS**2) or 1],
    )  # which tell how much all will take
    share = 1.05 * len(pictures) / max(1, len(some))
    side = next((side for side in SIDES if share * taken(drawn(some, side)) <= room), SIDES[-1])
    while taken(made := drawn(pictures, side)) > room:
        if side > SIDES[-1]:
            side = SIDES[SIDES.index(side) + 1]
        else:
            pictures = pictures[: int(len(pictures) * min(0.95, room / taken(made)))]
    return made


def taken(made: Sheets) -> int:
    return sum(map(len, made.data))


def drawn(pictures: Sequence[Image.Image], side: int) -> Sheets:
    rows, whole = min(ACROSS, math.ceil(len(pictures) / ACROSS)), ACROSS**2
    small = [shrunk(picture.convert("RGB"), side) for picture in pictures]
    data = []
    for first in range(0, len(small), whole):
        sheet = Image.new("RGB", (side * ACROSS, side * rows), "#808080")
        for place, picture in enumerate(small[first : first + whole]):
            sheet.paste(picture, (place % ACROSS * side, place // ACROSS * side))
        data.append(data_uri(sheet, "WEBP", quality=74, method=2))
    return Sheets(side, ACROSS, rows, [picture.size for picture in small], data)
