"""Decoding by threads, in order; bytes foreseen from headers are those that decoding gives."""

import dataclasses
import threading
import time

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image, PngImagePlugin
from torchvision.transforms.v2 import functional

from likewise.data import decoded_cache as decode
from likewise.data.crop_resize import shrink
from likewise.data.decoded_cache import decoded, decoded_bytes, pixels_of
from likewise.data.images import BadImage, image_of


def noise(wide: int, high: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8))


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.fixture
def items(tmp_path) -> Items:
    """Every kind of picture whose size is not simply that of its header."""
    late = PngImagePlugin.PngInfo()
    late.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="8"/>')
    noise(41, 30).save(tmp_path / "0.jpg")
    noise(41, 30).save(tmp_path / "1.jpg", exif=turned(6))
    noise(60, 22).save(tmp_path / "2.jpg", exif=b"Exif\x00\x00 nonsense")
    noise(23, 37).convert("RGBA").save(tmp_path / "3.png")
    noise(23, 37).save(tmp_path / "4.png", exif=turned(5))
    noise(31, 20).save(tmp_path / "5.png", pnginfo=late)
    noise(29, 50).save(tmp_path / "6.webp", exif=turned(8))
    noise(33, 21).save(tmp_path / "7.tif", tiffinfo={0x0112: 6})
    noise(19, 45).convert("P").save(tmp_path / "8.gif")
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)).save(tmp_path / "9.png")
    noise(18, 18).save(tmp_path / "10.bmp")
    path = tuple(sorted((file.name for file in tmp_path.iterdir()), key=lambda name: int(name.split(".")[0])))
    return Items("mixed", np.zeros(len(path), np.int64), ("a",), path, str(tmp_path))


def boxed(items: Items) -> Items:
    box = np.full((len(items), 4), np.nan)
    box[1] = 2.5, 3, 29.5, 41  # of the turned picture, which is 30 wide
    box[7] = 0, 0, 20, 33
    return dataclasses.replace(items, box=box)


@pytest.mark.parametrize("side", [None, 20, 29, 1000])
def test_bytes_are_foreseen_exactly(items, side):
    for data in (items, boxed(items)):
        wanted = sum(pixels_of(data, row, side).size for row in range(len(data)))
        assert decoded_bytes(data, side) == wanted


def test_of_simple_pictures_only_headers_are_read(items, monkeypatch):
    read = []
    monkeypatch.setattr(decode, "image_of", lambda data, row: (read.append(data.path[row]), image_of(data, row))[1])
    decoded_bytes(items, 20)
    assert sorted(read) == ["10.bmp", "4.png", "5.png", "7.tif", "8.gif"]


@pytest.mark.parity
def test_sizes_of_shrunk_pictures_are_torchvisions(tmp_path):
    sizes = [(wide, high) for wide in (31, 47, 100) for high in (30, 61, 333)]
    for number, (wide, high) in enumerate(sizes):
        Image.new("RGB", (wide, high)).save(tmp_path / f"{number}.png")
    names = tuple(f"{number}.png" for number in range(len(sizes)))
    items = Items("sizes", np.zeros(len(sizes), np.int64), ("a",), names, str(tmp_path))
    for side in (7, 13, 29):
        theirs = [functional.resize(Image.new("RGB", size), [side], antialias=True).size for size in sizes]
        assert decoded_bytes(items, side) == 3 * sum(wide * high for wide, high in theirs)


@pytest.mark.parametrize("workers", [-1, 0, 3])
def test_pictures_come_in_order_whoever_is_fastest(items, workers, monkeypatch):
    def late(data, row, side):
        time.sleep(0.03 * (row % 3 == 0))
        return pixels_of(data, row, side)

    monkeypatch.setattr(decode, "pixels_of", late)
    monkeypatch.setattr(decode, "PREFETCH_ITEMS", 4)
    found = list(decoded(items, 20, range(2, 11), workers, quiet=True))
    assert len(found) == 9
    for row, x in enumerate(found, 2):
        assert np.array_equal(x, np.array(shrink(image_of(items, row), 20)))


def test_no_more_than_a_few_pictures_are_held_ahead(items, monkeypatch):
    begun = []
    monkeypatch.setattr(decode, "pixels_of", lambda data, row, side: begun.append(row) or np.zeros((1, 1, 3), np.uint8))
    monkeypatch.setattr(decode, "PREFETCH_ITEMS", 3)
    pictures = decoded(items, None, range(11), quiet=True)
    next(pictures)
    assert max(begun) <= 3
    pictures.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


def test_a_broken_picture_is_named(items, tmp_path):
    (tmp_path / "3.png").write_bytes(b"no picture")
    with pytest.raises(BadImage, match=r"3\.png: this is not an image"):
        list(decoded(items, None, range(11), quiet=True))
    with pytest.raises(BadImage, match=r"3\.png: this is not an image"):
        decoded_bytes(items, None)
    with pytest.raises(BadImage, match="the box must lie inside the image"):
        decoded_bytes(dataclasses.replace(items, box=np.tile([0.0, 0, 35, 20], (11, 1))), None)


def test_what_has_no_pictures_is_refused(items):
    features = Items("points", np.zeros(2, np.int64), ("a",), x=np.zeros((2, 3), np.float32))
    with pytest.raises(LikewiseError, match="must be images, but points has none"):
        decoded_bytes(features, None)
    with pytest.raises(LikewiseError, match="side must be at least 1 or None, got 0"):
        decoded_bytes(items, 0)
