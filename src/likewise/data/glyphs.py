"""Glyphs: the built-in data set. A class is a Unicode character, drawn from the free fonts that matplotlib installs.

Half of the classes of every alphabet are for training, half for testing. Some characters of different scripts have the
same drawing (Latin A, Greek Alpha, Cyrillic A). They are included: no image can distinguish them, so they are real
ambiguities of the labels, and `homoglyphs` lists them.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Interval
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from likewise.core.argument_checks import CountOrZero, argument_hints, as_number, check_arguments
from likewise.core.files import cache_folder
from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.data.label_sets import join_labels, with_label_sets

__all__ = ["glyph_labels", "glyphs", "homoglyphs"]

Side = Annotated[int, Interval(ge=8, le=1024)]
PerClass = Annotated[int, Interval(ge=2, le=10_000)]
AtLeastTwo = Annotated[int, Ge(2)]

VERSION = 2  # of the drawing: increase it when pixels, classes or splits change, so that no old cache is used

_DEJAVU_FONTS = [
    f"DejaVu{family}{style}"
    for family, slant in (("Sans", "Oblique"), ("SansMono", "Oblique"), ("Serif", "Italic"))
    for style in ("", "-Bold", f"-{slant}", f"-Bold{slant}")
]
_STIX_FONTS = ["STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"]
# Computer Modern has other characters at most code points; only ASCII letters and digits are in their usual places.
_MODERN_FONTS = ["cmr10", "cmb10", "cmss10", "cmtt10", "cmti10"]

FONT_FAMILIES = {
    "DejaVuSansMono": "monospaced", "DejaVuSerif": "serif", "DejaVuSans": "sans", "STIXGeneral": "serif", "cmss": "sans",
    "cmtt": "monospaced", "cm": "serif",
}  # fmt: skip
"""Start of the name of a font file -> label of its family; the first that fits."""

# (script, kind): the characters, as text or as spans of code points, both ends included.
_ALPHABET_CHARACTERS: dict[tuple[str, str], str | tuple[tuple[int, int], ...]] = {
    ("Latin", "uppercase"): "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    ("Latin", "lowercase"): "abcdefghijklmnopqrstuvwxyz",
    ("Latin", "extended"): "ÆÐÞŁŊßæðøþħŋəɛɣʃ",
    ("Greek", "uppercase"): ((0x391, 0x3A1), (0x3A3, 0x3A9)),
    ("Greek", "lowercase"): ((0x3B1, 0x3C9),),
    ("Cyrillic", "uppercase"): ((0x410, 0x42F),),
    ("Cyrillic", "lowercase"): ((0x430, 0x44F),),
    ("Armenian", "uppercase"): ((0x531, 0x556),),
    ("Armenian", "lowercase"): ((0x561, 0x586),),
    ("Georgian", "letter"): ((0x10D0, 0x10F0),),
    ("Hebrew", "letter"): ((0x5D0, 0x5EA),),
    ("Arabic", "letter"): ((0x627, 0x63A), (0x641, 0x64A)),
    ("Common", "digit"): "0123456789",
    ("Common", "punctuation"): "!#%&()*?@[]{}«»§¶†¿",
    ("Common", "operator"): "+×÷±=≠≈≡≤≥∂∇∈∏∑√∝∞∠∩∪∫∀∃⊂⊃⊕⊗",
    ("Common", "arrow"): "←↑→↓↔↕↖↗↘↙↠↦↩↪↰↱↺↻⇄⇒",
    ("Common", "currency"): "$¢£¥€₦₩₫₮₱₲₴₹₽",
    ("Common", "shape"): "■□▲△▶▽◆◇○◎●◐☀☺♀♂♠♣♥♪♫♭♯",
}


def glyphs(
    root: str | Path | None = None,
    *,
    size: Side = 40,
    per_class: PerClass = 24,
    classes: AtLeastTwo | None = None,
    seed: CountOrZero = 0,
) -> Items:
    """Draw the glyphs, unless they are cached, and return their table. The taxonomy is script > kind.

    An image depends only on seed, character, its number within the class, and size, so other numbers of images or classes do
    not change it. A class has the same number `y` and the same split for all arguments.

    Args:
        root: folder of caches; the images are in `glyphs-<key>` below it, with a key per choice of arguments.
            Default: `files.cache_folder()`.
        size: width and height in pixels.
        per_class: images per character.
        classes: use only the first classes, balanced over splits and scripts. Default: all.
        seed: seed of the drawing.
    """
    table = characters()
    given = {"size": size, "per_class": per_class, "classes": classes, "seed": seed}
    check_arguments("glyphs", {name: as_number(value) for name, value in given.items()}, argument_hints(glyphs)[1])
    if classes is not None and classes > len(table):
        raise LikewiseError(f"glyphs: classes must be at most {len(table)}, the number of characters, got {classes}")
    table = table[:classes]
    faces = font_files([code for code, *_ in table])
    if root is None:
        root = cache_folder()
    folder = Path(root).expanduser().absolute() / f"glyphs-{_key(faces, size, per_class, len(table), seed)}"
    path = tuple(_file(code, number) for code, *_ in table for number in range(per_class))
    if not _complete(folder, path):
        _draw_all(folder, path, faces, int(per_class), int(seed), int(size))
    class_name = tuple(f"U+{code:04X} {chr(code)}" for code, *_ in table)
    return Items(
        name="glyphs",
        y=np.repeat(np.arange(len(table)), per_class),
        class_name=class_name,
        path=path,
        root=str(folder),
        split=np.repeat([split for *_, split in table], per_class),
        taxonomy={f"U+{code:04X} {chr(code)}": (script, f"{script} {kind}") for code, script, kind, _ in table},
    )


def glyph_labels(
    root: str | Path | None = None,
    *,
    size: Side = 40,
    per_class: PerClass = 24,
    classes: AtLeastTwo | None = None,
    seed: CountOrZero = 0,
) -> Items:
    """Return the images of `glyphs` with several labels each. A class is a distinct set of labels.

    Labels of an image: the letter without its case ("a" for A and a; another character is its own label), the script ("Common"
    for digits and signs), the kind ("uppercase", "digit"), the family of its font, and "bold" and "italic" if they apply. Splits
    are those of `glyphs`: a letter can be in training as uppercase and in testing as lowercase, but no set of labels is in both.

    Args:
        root: as for `glyphs`.
        size: as for `glyphs`.
        per_class: images per character.
        classes: use only the first characters. Default: all.
        seed: seed of the drawing.
    """
    items = glyphs(root, size=size, per_class=per_class, classes=classes, seed=seed)
    table = characters()[: items.classes]
    faces = font_files([code for code, *_ in table])
    names = []
    for code, script, kind, _ in table:
        letter = chr(code).lower() if kind == "uppercase" else chr(code)
        of_character = letter, script, kind
        drawn = (face_of(seed, code, number, faces[code]) for number in range(per_class))
        names += [join_labels(sorted((*of_character, *labels_of_font(Path(face).stem)))) for face in drawn]
    class_name, y = np.unique(names, return_inverse=True)
    sets = replace(items, name="glyph_labels", y=y, class_name=tuple(class_name.tolist()), taxonomy=None)
    return with_label_sets(sets)


def labels_of_font(name: str) -> tuple[str, ...]:
    """Return the family of a font, and whether it is bold or italic, from the name of its file."""
    family = next(label for start, label in FONT_FAMILIES.items() if name.startswith(start))
    bold = ("bold",) if "Bol" in name or name == "cmb10" else ()
    italic = ("italic",) if "Ita" in name or "Oblique" in name or name == "cmti10" else ()
    return (family, *bold, *italic)


def characters() -> list[tuple[int, str, str, str]]:
    """Return (code point, script, kind, split) by class number. Scripts and splits alternate."""
    turns: dict[tuple[str, str], list] = defaultdict(list)
    for (script, kind), letters in _ALPHABET_CHARACTERS.items():
        codes = (
            [ord(c) for c in letters] if isinstance(letters, str) else [c for a, b in letters for c in range(a, b + 1)]
        )
        # Sorted by hash: neighbours in an alphabet often look alike, so contiguous halves would separate similar characters.
        codes.sort(key=lambda code: hashlib.sha256(f"glyphs {code}".encode()).digest())
        for place, code in enumerate(codes):
            split = "test" if place % 2 else "train"
            turns[script, split].append((place, code, script, kind, split))
    for queue in turns.values():
        queue.sort(key=lambda entry: entry[0])  # stable: the kinds of a script alternate as well
    return [entry[1:] for turn in zip_longest(*turns.values()) for entry in turn if entry]


def homoglyphs(items: Items) -> list[tuple[int, ...]]:
    """Return groups of class numbers that have the same drawing in the plain sans font."""
    if wrong := [name for name in items.class_name if not name.startswith("U+")]:
        raise LikewiseError(
            f"homoglyphs: class names must be like 'U+0041 A', got {wrong[0]!r}; pass the items of glyphs()"
        )
    codes = [int(name[2:].split()[0], 16) for name in items.class_name]
    faces = font_files(codes)
    groups: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for y, code in enumerate(codes):
        groups[faces[code][0], outline(faces[code][0], chr(code))].append(y)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def outline(face: str, text: str) -> bytes:
    """Return the drawing of a character in a font as bytes; two characters have equal bytes only if they look the same."""
    mask = _font(face, 64).getmask(text, mode="L")
    return repr(mask.size).encode() + bytes(mask)  # pyright: ignore[reportArgumentType]


def font_files(codes: list[int]) -> dict[int, tuple[str, ...]]:
    """Return the font files that contain each character."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    having: dict[int, list[str]] = {code: [] for code in codes}
    for name in _DEJAVU_FONTS + _STIX_FONTS + _MODERN_FONTS:
        file = str(folder / f"{name}.ttf")
        charmap = FT2Font(file).get_charmap() if os.path.isfile(file) else {}
        for code, files in having.items():
            if code in charmap and (name not in _MODERN_FONTS or (code < 128 and chr(code).isalnum())):
                files.append(file)
    for code, files in having.items():
        if not files:
            raise LikewiseError(
                f"glyphs: a font must contain U+{code:04X}, but none in {folder} does; reinstall matplotlib"
            )
    return {code: tuple(files) for code, files in having.items()}


def _key(faces: dict[int, tuple[str, ...]], *parameters: int) -> str:
    digest = hashlib.sha256(repr((VERSION, *map(int, parameters))).encode())
    for file in sorted({file for files in faces.values() for file in files}):
        digest.update(Path(file).name.encode() + hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()[:12]


def _file(code: int, number: int) -> str:
    return f"U+{code:04X}/{number:04d}.png"


def _complete(folder: Path, path: tuple[str, ...]) -> bool:
    """Whether all images exist. A folder gets its name when it is complete, but cleaning tools may delete single files."""
    try:
        return folder.is_dir() and all(os.stat(folder / file).st_size > 0 for file in path)
    except FileNotFoundError:
        return False


@lru_cache(maxsize=64)
def _font(face: str, px: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(face, px, layout_engine=ImageFont.Layout.BASIC)


def draw(seed: int, code: int, number: int, size: int, faces: tuple[str, ...]) -> Image.Image:
    """Draw one image of a character; a pure function of its arguments."""
    rng = np.random.default_rng((seed, code, number))
    face = pick(faces, rng)
    return _paint(_shape(chr(code), face, size, rng), rng)


def face_of(seed: int, code: int, number: int, faces: tuple[str, ...]) -> str:
    """Return the font file that `draw` uses for an image."""
    return pick(faces, np.random.default_rng((seed, code, number)))


def pick(faces: tuple[str, ...], rng: np.random.Generator) -> str:
    return faces[int(rng.random() * len(faces))]


def _shape(text: str, face: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the ink per pixel, 0 to 1: the character with a random stroke width, crossing lines and a random affine map."""
    hollow, bold, lines, turn, shear, zoom, aspect, right, down, blur = rng.random(10).tolist()
    ends = rng.random((3, 4))
    side, em = round(2.3 * size), round(1.4 * size)  # larger than the image, so that the map shrinks it smoothly
    font, edge = _font(face, em), math.ceil(0.1 * em)
    x0, y0, x1, y1 = font.getbbox(text)
    glyph = Image.new("L", (x1 - x0 + 2 * edge, y1 - y0 + 2 * edge))  # pyright: ignore[reportArgumentType]
    ImageDraw.Draw(glyph).text((edge - x0, edge - y0), text, fill=255, font=font)
    # Thresholding the blurred glyph gives a bolder or thinner stroke; a band of levels gives a hollow outline.
    level = np.arange(256) / 255
    stroke = 1.6 - np.abs(level - 0.45) / 0.16 if hollow < 0.06 else (level - 0.15 - 0.35 * bold) / 0.25 + 0.5
    levels = (np.clip(stroke, 0, 1) * 255).astype(np.uint8)
    glyph = Image.fromarray(levels[np.asarray(glyph.filter(ImageFilter.GaussianBlur(0.03 * em)))])
    canvas = Image.new("L", (side, side))
    canvas.paste(glyph, ((side - glyph.width) // 2, (side - glyph.height) // 2))
    pen = ImageDraw.Draw(canvas)
    for k in range(int(lines * 4)):  # lines of ink add strokes, lines of background cut the character
        pen.line((ends[k] * side).tolist(), fill=255 * (k % 2), width=max(1, round(0.045 * em)))
    angle, lean, grow, widen = (
        reach * (2 * u - 1) for reach, u in ((0.15, turn), (0.15, shear), (0.14, zoom), (0.13, aspect))
    )
    wide, high = (0.85 * math.exp(grow + sign * widen) * size / em for sign in (1, -1))
    cos, sin = math.cos(angle), math.sin(angle)
    # Pillow needs the inverse map, from image to canvas: the inverse of turn @ shear @ scale about the centres.
    a, b = (cos + lean * sin) / wide, (sin - lean * cos) / wide
    c, d = -sin / high, cos / high
    x, y = (size * (0.5 + 0.04 * (2 * u - 1)) for u in (right, down))
    back = (a, b, side / 2 - a * x - b * y, c, d, side / 2 - c * x - d * y)
    shape = canvas.transform((size, size), Image.Transform.AFFINE, back, Image.Resampling.BILINEAR)
    return np.asarray(shape.filter(ImageFilter.GaussianBlur(0.022 * blur * size)), np.float32) / 255


def _paint(shape: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Colour the shape on a background, mostly dark on light, with uneven light and grain."""
    size = len(shape)
    contrast, dark, negative, down, right, grain = rng.random(6).tolist()
    contrast = 75 + 80 * contrast
    dark = 20 + (215 - contrast) * dark
    tint = rng.uniform(-40, 40, (2, 3))
    tint -= tint.mean(1, keepdims=True)  # changes only the colour, not the brightness contrast
    ink, paper = tint + ([[dark + contrast], [dark]] if negative < 0.08 else [[dark], [dark + contrast]])
    ramp = np.linspace(-20, 20, size)
    light = (2 * down - 1) * ramp[:, None] + (2 * right - 1) * ramp
    light += 12 * grain * rng.standard_normal((size, size))
    x = light[..., None] + paper + shape[..., None] * (ink - paper)
    return Image.fromarray(x.clip(0, 255).astype(np.uint8))


def _draw_class(folder: str, code: int, faces: tuple[str, ...], per_class: int, seed: int, size: int) -> None:
    os.mkdir(os.path.dirname(os.path.join(folder, _file(code, 0))))
    for number in range(per_class):
        image = draw(seed, code, number, size, faces)
        image.save(os.path.join(folder, _file(code, number)), compress_level=1)


def _draw_all(folder: Path, path: tuple[str, ...], faces: dict[int, tuple[str, ...]], *settings: int) -> None:
    """Draw every class, with one process per available core; `settings` are per_class, seed and size."""
    # Forked workers start fast and need no `__main__` guard in the caller's script; where fork is unsafe, one process draws.
    workers = len(os.sched_getaffinity(0)) if sys.platform == "linux" and not current_process().daemon else 1
    with _whole(folder, path) as temp, bar("draw glyphs", len(path), quiet=len(path) < 2000) as progress:
        jobs = [(str(temp), code, files, *settings) for code, files in faces.items()]
        if workers == 1 or len(path) < 1000:
            for job in jobs:
                _draw_class(*job)
                progress.advance(settings[0])
            return
        ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops the workers
        pool = ProcessPoolExecutor(workers, get_context("fork"), initializer=signal.signal, initargs=ignore)
        try:
            for done in as_completed([pool.submit(_draw_class, *job) for job in jobs]):
                done.result()
                progress.advance(settings[0])
        finally:
            pool.shutdown(cancel_futures=True)  # waits: no worker may write into the folder after it is removed


@contextmanager
def _whole(folder: Path, path: tuple[str, ...]) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` on success and deleted on failure."""
    temp = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    broken = temp.with_name(temp.name + "-broken")
    temp.mkdir(parents=True)
    try:
        for other in folder.parent.glob(f".{folder.name}-*"):
            with suppress(FileNotFoundError):
                if time.time() - other.stat().st_mtime > 3600:  # of a killed process
                    shutil.rmtree(other, ignore_errors=True)
        yield temp
        with suppress(FileNotFoundError):
            if not _complete(folder, path):
                folder.rename(broken)
        with suppress(OSError):  # another process was faster: its images are the same
            temp.rename(folder)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
        shutil.rmtree(broken, ignore_errors=True)
    if not _complete(folder, path):
        raise LikewiseError(f"glyphs: {folder} must hold {len(path)} images, but some are missing; delete the folder")
