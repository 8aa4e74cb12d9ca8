from pathlib import Path

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image


@pytest.fixture
def draw(tmp_path):
    """Write a small picture below tmp_path and return its full path."""

    def write(name: str, colour=(200, 60, 30), size=(8, 6)) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, colour).save(file)
        return file

    return write


@pytest.fixture
def write(tmp_path):
    """Write a text file below tmp_path and return its full path as text."""

    def text(name: str, content: str | bytes) -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return text


@pytest.fixture
def items(tmp_path):
    """Six pictures of three classes with every column."""
    for row in range(6):
        pixels = np.random.default_rng(0).integers(0, 256, (40, 50 + row, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
    return Items(
        "six",
        np.array([0, 0, 1, 1, 2, 2]),
        ("a", "b", "c"),
        path=tuple(f"{row}.png" for row in range(6)),
        root=str(tmp_path),
        split=np.array(["train"] * 4 + ["test"] * 2),
        query=np.array([0, 1, 0, 1, 0, 1], bool),
        gallery=np.array([1, 0, 1, 0, 1, 0], bool),
        group=np.array([0, 0, 1, 1, -1, -1]),
        camera=np.array(["c1", "c2", "c1", "c2", "c1", ""]),
        junk=np.array([0, 0, 0, 0, 0, 1], bool),
        box=np.array([[np.nan] * 4] * 5 + [[0, 0, 30, 30]]),
        weight=np.arange(6.0),
        y_clean=np.array([0, 0, 1, 1, 2, 2]),
        taxonomy={"a": ("top",), "b": ("top",), "c": ("top", "low")},
    )


@pytest.fixture
def refused(subtests):
    """Check pairs of a call and the words of its error, one after another."""

    def check(*cases):
        for call, words in cases:
            with subtests.test(words), pytest.raises(LikewiseError, match=words):
                call()

    return check
