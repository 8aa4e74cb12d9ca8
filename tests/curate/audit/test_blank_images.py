import io
from dataclasses import replace

import numpy as np
from likewise.types import Items
from PIL import Image, ImageFile

from likewise.curate.audit.blank_images import blank_images, blank_reason, blank_rows


def photograph() -> Image.Image:
    rows, columns = np.indices((90, 120))
    levels = np.stack([120 + 90 * np.sin(rows / 9), 120 + 90 * np.cos(columns / 7), rows + columns], 2)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def test_reasons(monkeypatch):
    rng = np.random.default_rng(0)
    grey = np.full((150, 160, 3), 128.0)
    assert blank_reason(Image.fromarray(grey.astype(np.uint8))) == "blank image"
    assert blank_reason(Image.fromarray((grey + rng.normal(0, 3, grey.shape)).astype(np.uint8))) == "blank image"
    assert blank_reason(Image.new("L", (5, 5), 255)) == "blank image"
    assert blank_reason(photograph()) is None
    assert blank_reason(None) == "unreadable image"
    black_below = np.asarray(photograph()).copy()
    black_below[40:] = 0
    assert blank_reason(Image.fromarray(black_below)) == "half blank image"
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    whole = io.BytesIO()
    photograph().save(whole, "jpeg")
    assert blank_reason(Image.open(io.BytesIO(whole.getvalue()[: len(whole.getvalue()) // 3]))) == "half blank image"


def test_rows():
    images = [photograph(), None, Image.new("RGB", (8, 8))]
    assert blank_images(images.__getitem__, 3) == {1: "unreadable image", 2: "blank image"}


def test_rows_of_items(tmp_path):
    photograph().save(tmp_path / "a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"no image")
    half = np.asarray(photograph()).copy()
    half[40:] = 0
    Image.fromarray(half).save(tmp_path / "e.png")
    path = tuple(f"{name}.png" for name in "abcde")  # d is missing
    items = Items("toy", np.zeros(5, np.int64), ("wren",), path=path, root=str(tmp_path))
    assert blank_rows(items, np.arange(5)) == {1: "blank image", 2: "unreadable image"}
    assert blank_rows(items, np.array([0, 2])) == {2: "unreadable image"}
    assert blank_rows(replace(items, path=None), np.arange(5)) == {}
