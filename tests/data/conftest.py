from pathlib import Path

import pytest
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
