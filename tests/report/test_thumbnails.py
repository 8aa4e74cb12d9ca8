"""Thumbnails: read, counted if broken, and drawn into sheets that fit."""

import base64
import dataclasses
import io
import shutil

import numpy as np
import pytest
from PIL import Image

from likewise.data import load
from likewise.report.thumbnails import IMAGE_SIDES, SHEET_SIDE, make_sheets, read_thumbnails


def test_pictures_are_shrunk_and_broken_ones_counted(pictures, tmp_path):
    items = load(str(shutil.copytree(pictures, tmp_path / "p")))
    found, wrong = read_thumbnails(items, [5, 0, 30], side=12, quiet=True)
    assert list(found) == [5, 0, 30] and wrong == "" and found[0].size == (12, 10)
    file = tmp_path / "p" / items.path[0]
    file.write_bytes(b"no picture")
    found, wrong = read_thumbnails(items, [5, 0], quiet=True)
    assert list(found) == [5] and wrong.startswith("1 of 2 images cannot be read") and file.name in wrong
    assert read_thumbnails(dataclasses.replace(items, path=None), [1], quiet=True) == ({}, "")


def opened(uri):
    head, data = uri.split(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def noise(count, size=(128, 128)):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)) for _ in range(count)]


def test_each_picture_stands_in_its_cell():
    colours = [(i * 2 % 256, 255 - i * 2 % 256, 128) for i in range(SHEET_SIDE**2 + 3)]
    made = make_sheets([Image.new("RGB", (200, 100), colour) for colour in colours], 10_000_000)
    assert (
        len(made.data) == 2
        and made.side == IMAGE_SIDES[0]
        and set(made.size) == {(IMAGE_SIDES[0], IMAGE_SIDES[0] // 2)}
    )
    for number in (0, 7, 58, 99, 100, 102):
        sheet, cell = opened(made.data[number // SHEET_SIDE**2]), number % SHEET_SIDE**2
        left, top = cell % SHEET_SIDE * made.side, cell // SHEET_SIDE * made.side
        middle = sheet[top + 10 : top + 50, left + 10 : left + 110].mean((0, 1))
        assert np.abs(middle - colours[number]).max() < 8, number


def test_a_sheet_is_no_higher_than_its_rows():
    made = make_sheets(noise(11, (40, 30)), 10_000_000)
    assert opened(made.data[0]).shape == (2 * made.side, SHEET_SIDE * made.side, 3)
    assert made.size[0] == (40, 30)  # a small picture stays as it is


def test_pictures_shrink_until_they_fit():
    large, small = make_sheets(noise(60), 10_000_000), make_sheets(noise(60), 150_000)
    assert large.side == IMAGE_SIDES[0] > small.side and len(small.size) == 60
    assert sum(map(len, small.data)) <= 150_000


@pytest.mark.parametrize("room", [20_000, 0, -5])
def test_those_at_the_end_are_left_out_where_even_small_ones_do_not_fit(room):
    made = make_sheets(noise(60), room)
    assert made.side == IMAGE_SIDES[-1] and len(made.size) < 60 and sum(map(len, made.data)) <= max(room, 0)
    assert bool(made.size) == (room > 0)


def test_no_pictures_are_no_sheets():
    assert make_sheets([], 1000).data == []


def test_grey_and_transparent_pictures_are_pictures():
    assert (
        len(make_sheets([Image.new("L", (5, 5)), Image.new("RGBA", (5, 5)), Image.new("P", (5, 5))], 10_000).size) == 3
    )
