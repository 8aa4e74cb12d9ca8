"""Pictures are opened in the formats that their suffixes promise, and in no other: PostScript is a program."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, UnidentifiedImageError

import likewise
from likewise.core.image_files import FORMAT_OF, IMAGE_SUFFIXES, formats, open_image
from likewise.core.notebook import thumbnail
from likewise.data.decoded_cache import _outline
from likewise.data.hugging_face import UNKNOWN_SUFFIX, suffix_of
from likewise.data.images import BadImage, read_image


@pytest.fixture
def postscript(tmp_path, monkeypatch):
    """A `.png` that holds PostScript; starting Ghostscript fails the test."""
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png", "EPS")
    return tmp_path / "a.png"


def test_postscript_named_png_is_no_picture(postscript):
    with Image.open(postscript) as image:  # what Pillow does by itself
        assert image.format == "EPS"
    with pytest.raises(UnidentifiedImageError):
        open_image(postscript)
    with pytest.raises(BadImage, match=r"a\.png: this is not an image in a known format \(JPEG, .*\); drop it"):
        read_image(postscript)
    assert _outline(str(postscript)) is None and thumbnail(str(postscript)) == ""
    assert suffix_of(postscript.read_bytes()) == UNKNOWN_SUFFIX == suffix_of(str(postscript))


def test_every_suffix_is_read(tmp_path):
    pixels = Image.fromarray(np.zeros((16, 16), np.uint8)).convert("RGB")
    for suffix, kind in FORMAT_OF.items():
        if kind in formats():
            try:
                pixels.save(tmp_path / f"a{suffix}", kind)
            except (KeyError, OSError):  # this Pillow reads the format without writing it
                continue
            with open_image(tmp_path / f"a{suffix}") as image:
                assert image.format == kind and read_image(tmp_path / f"a{suffix}").size == (16, 16)
    assert {".jpg", ".png", ".tiff"} < IMAGE_SUFFIXES and not {"EPS", "WMF", "PSD"} & set(formats())


def test_pictures_of_stereo_cameras_are_read():
    held, two = io.BytesIO(), [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    two[0].save(held, "MPO", save_all=True, append_images=two[1:])
    with open_image(held) as image:
        assert image.format == "MPO"


def test_nothing_opens_pictures_in_another_way():
    home = Path(likewise.__file__).parent
    for file in [*home.rglob("*.py"), *home.rglob("*.txt")]:
        for call in re.findall(r"Image\.open\((?:[^()]|\([^()]*\))*\)", file.read_text("utf-8")):
            assert "formats=" in call, f"{file.relative_to(home)}: {call}; use likewise.core.image_files.open_picture"
