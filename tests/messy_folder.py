"""A small folder of class folders with everything that real folders hold: broken files, odd formats, odd names, copies."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CLASS_NAMES = ("aster", "blue bell", "crocus", "daisy's", "été", "=cmd|x", "fox <b>glove", "gentian", "holly", "iris")
"""Names of the ordinary classes, with a space, a quote, letters beyond ASCII, a formula and a tag among them."""

SIDE = 40
"""Width and height of the images."""


@dataclass(frozen=True)
class MessyFolder:
    """A messy folder. All paths are relative to `root`, with "/" between the parts."""

    root: Path
    good: list[str]  # images that can be decoded, in the order of their rows once the broken ones are skipped
    broken: list[str]  # files that exist but cannot be decoded: no image, a truncated one, an empty file
    copy: tuple[str, str]  # two files with the same bytes, in two classes; the second is the wrong label
    lonely: str  # name of the class with one image
    empty: str  # name of a class folder without a file
    ignored: list[str]  # files that are not images
    odd: dict[str, str]  # "alpha", "cmyk", "rotated" -> an image of that kind

    def __fspath__(self) -> str:
        return str(self.root)


def make_messy_folder(path: str | Path, classes: int = 6, per_class: int = 8, seed: int = 0) -> MessyFolder:
    """Write a messy folder below `path` and return what is in it.

    The folder holds `classes` classes of `per_class` good images (each class has its own pattern, with noise), and besides
    them three broken files, two files that are no images, an empty class folder, a class of one image, and a copy of an image
    of the first class in the second class. With the same arguments, it always holds the same images.
    """
    root, rng = Path(path), np.random.default_rng(seed)
    names, lonely, empty = CLASS_NAMES[:classes], "lonely lily", "nothing here"
    assert 2 <= classes <= len(CLASS_NAMES) and per_class >= 4, "2 to 10 classes of 4 images or more"
    for name in (*names, lonely, empty):
        (root / name).mkdir(parents=True)
    good = []
    for name in names:
        pattern = rng.integers(0, 256, (5, 5, 3))
        for number in range(per_class):
            file = f"{name}/{number} {name}.jpg" if number % 2 else f"{name}/{number}.png"
            drawn(pattern, rng).save(root / file, quality=95)
            good.append(file)
    drawn(rng.integers(0, 256, (5, 5, 3)), rng).save(root / lonely / "only one.jpg", quality=95)
    good.append(f"{lonely}/only one.jpg")
    copied = (good[0], f"{names[1]}/copy of another.png")
    shutil.copyfile(root / copied[0], root / copied[1])
    good.append(copied[1])
    odd = make_odd(root, good[1:per_class:2])
    broken, ignored = break_files(root, names), [f"{names[0]}/notes.txt", "read me.txt"]
    for file in ignored:
        (root / file).write_text("not an image")
    return MessyFolder(root, sorted(good, key=lambda f: f.split("/")), broken, copied, lonely, empty, ignored, odd)


def drawn(pattern: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Return the pattern of a class as an image, with noise."""
    pixels = np.kron(pattern, np.ones((SIDE // 5, SIDE // 5, 1))) + rng.normal(0, 20, (SIDE, SIDE, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_odd(root: Path, files: list[str]) -> dict[str, str]:
    """Rewrite JPEG files in other forms of the same image: CMYK, rotated by an EXIF tag; and add transparency to a PNG."""
    cmyk, rotated = files[:2]
    with Image.open(root / cmyk) as image:
        image.convert("CMYK").save(root / cmyk, quality=95)
    with Image.open(root / rotated) as image:
        turned, tags = image.transpose(Image.Transpose.ROTATE_90), Image.Exif()
        tags[0x0112] = 6  # shown after a rotation by 90 degrees clockwise
        turned.save(root / rotated, quality=95, exif=tags)
    alpha = f"{cmyk.split('/')[0]}/2.png"
    with Image.open(root / alpha) as image:
        image.putalpha(Image.linear_gradient("L").resize(image.size))
        image.save(root / alpha)
    return {"alpha": alpha, "cmyk": cmyk, "rotated": rotated}


def break_files(root: Path, names: tuple[str, ...]) -> list[str]:
    """Write three files with suffixes of images that cannot be decoded; return them in the order of their rows."""
    whole = io.BytesIO()
    Image.radial_gradient("L").resize((SIDE, SIDE)).convert("RGB").save(whole, "JPEG", quality=95)
    files = {
        f"{names[0]}/broken.jpg": b"this is not a JPEG file",
        f"{names[1]}/truncated.jpg": whole.getvalue()[: len(whole.getvalue()) // 2],
        f"{names[-1]}/zero bytes.png": b"",
    }
    for file, content in files.items():
        (root / file).write_bytes(content)
    return sorted(files, key=lambda file: file.split("/"))
