"""Pictures of items: decode them, find and drop the broken ones."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

from likewise.io.image_files import formats, open_picture
from likewise.types import Items, LikewiseError

SHAPE = 100
"""Long side by short side, at most: a network sees the short side resized, and the long one grows with it."""


class BadImage(LikewiseError):
    """A picture that cannot be used. The text names the file and what is wrong with it."""


def read_image(path: str | os.PathLike, box: Iterable[float] | None = None) -> Image.Image:
    """A picture as people see it: RGB, turned as its EXIF says, transparent parts on white, first frame if it moves.

    Grey values beyond 8 bit are scaled by the full range of their type; where it has none (32 bit), see `to_8bit`.

    Args:
        box: left, top, right, bottom in pixels of the turned picture; None or NaN = all of it.
    """
    try:
        if os.path.getsize(path) == 0:
            raise BadImage(f"{path}: the file is empty (0 bytes); download it again or drop it")
        with open_picture(path) as image:
            image.load()
            image = to_rgb(upright(image))
    except BadImage:
        raise
    except FileNotFoundError:
        raise BadImage(f"{path}: there is no such file; check the path and root") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadImage(
            f"{path}: the picture has more pixels than is safe to decode (limit {2 * (Image.MAX_IMAGE_PIXELS or 0):,}); "
            "shrink it first"
        ) from None
    except Image.UnidentifiedImageError:
        raise BadImage(
            f"{path}: this is not a picture in a known format ({', '.join(formats())}); drop it or convert it"
        ) from None
    except MemoryError:
        raise BadImage(f"{path}: there is not enough memory to decode it; shrink it first") from None
    except Exception as error:
        raise BadImage(f"{path}: the picture cannot be decoded ({error}); download it again or drop it") from None
    return check_shape(image if box is None else cut(image, np.asarray(tuple(box), np.float64), path), path)


def check_shape(image: Image.Image, owner: str | os.PathLike) -> Image.Image:
    """The picture, unless it is a mere line: of few bytes, but of many once it is resized."""
    if max(image.size) > SHAPE * min(image.size):
        raise BadImage(
            f"{owner}: the long side of a picture may be {SHAPE} times the short one, got {image.width} x {image.height}; "
            "cut a part out of it"
        )
    return image


def upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(to_8bit(np.asarray(image), image.mode)).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        paper = Image.new("RGBA", seen.size, "white")
        return Image.alpha_composite(paper, seen).convert("RGB")
    return image if image.mode == "RGB" and type(image) is Image.Image else image.convert("RGB")


def to_8bit(grey: np.ndarray, mode: str) -> np.ndarray:
    """16 bit: 65535 becomes 255. Modes I and F carry no range of their own: 0..65535 of I counts as 16 bit, F within
    0..1 as a share and within 0..255 as 8 bit; anything else is stretched from its least to its largest value."""
    if not np.isfinite(grey).all():
        raise ValueError("it holds NaN or infinite pixels")
    low, high = float(grey.min()), float(grey.max())
    if mode != "F" and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    elif mode == "F" and low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    span = (high - low) or 1.0
    return np.round((grey.astype(np.float64) - low) * (255 / span)).astype(np.uint8)


def cut(image: Image.Image, box: np.ndarray, path: str | os.PathLike) -> Image.Image:
    if np.isnan(box).all():
        return image
    left, top, right, bottom = box
    width, height = image.size
    # One pixel of slack: boxes are often given with rounded or 1-based corners.
    if not (-1 <= left < right <= width + 1 and -1 <= top < bottom <= height + 1):
        raise BadImage(
            f"{path}: the box must lie inside the picture ({width} x {height}) as left top right bottom, "
            f"got {left:g} {top:g} {right:g} {bottom:g}; correct the box"
        )
    corners = (max(0, int(left)), max(0, int(top)), min(width, int(np.ceil(right))), min(height, int(np.ceil(bottom))))
    if corners[0] >= corners[2] or corners[1] >= corners[3]:
        raise BadImage(f"{path}: the box {left:g} {top:g} {right:g} {bottom:g} holds no pixel; correct the box")
    return image.crop(corners)


def file_of(items: Items, row: int) -> str:
    assert items.path is not None
    return os.path.join(items.root, items.path[row])


def image_of(items: Items, row: int) -> Image.Image:
    """The picture of a row, or the part of it that its box says."""
    return read_image(file_of(items, row), None if items.box is None else items.box[row])


def check_files(items: Items, rows: Iterable[int] | None = None) -> None:
    """Every file is there and holds bytes; pictures are not decoded. Items without paths pass."""
    if items.path is None:
        return
    bad = []
    for row in range(len(items)) if rows is None else rows:
        try:
            found = os.stat(file_of(items, row))
            wrong = "" if stat.S_ISREG(found.st_mode) and found.st_size else "empty or not a file"
        except OSError as error:
            wrong = "missing" if isinstance(error, FileNotFoundError) else (error.strerror or "unreadable")
        if wrong:
            bad.append(f"{file_of(items, row)} ({wrong})")
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise LikewiseError(
            f"{items.name}: every picture must be there, but {len(bad)} cannot be used: {', '.join(bad[:3])}{more}; "
            "check root and the paths; --skip-bad goes on without them"
        )


class Decoded(Dataset):
    """Row -> what is wrong with its picture, "" where nothing is."""

    def __init__(self, items: Items, rows: list[int]):
        self.items, self.rows = items, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[int, str]:
        row = self.rows[number]
        try:
            image_of(self.items, row)
        except BadImage as error:
            return row, str(error)
        return row, ""


def find_bad(
    items: Items,
    rows: Iterable[int] | None = None,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[int, str]]:
    """Decode every picture and return the rows that fail, each with the reason.

    Args:
        workers: processes that decode; 0 = this one.
        progress: called with how many are done, and of how many.
    """
    if items.path is None:
        return []
    asked = Decoded(items, [int(row) for row in (range(len(items)) if rows is None else rows)])
    bad, done = [], 0
    for chunk in DataLoader(asked, batch_size=32, num_workers=workers, collate_fn=list):
        bad += [(row, wrong) for row, wrong in chunk if wrong]
        done += len(chunk)
        if progress is not None:
            progress(done, len(asked))
    return bad


def drop(items: Items, rows: Iterable[int]) -> Items:
    """Items without these rows. Rows are numbered anew; so are classes, those without a row left being taken out."""
    gone = np.unique(np.asarray(list(rows), np.int64))
    if len(gone) and not (gone[0] >= 0 and gone[-1] < len(items)):
        raise LikewiseError(f"drop: rows must lie in 0..{len(items) - 1}, got {gone[0]} to {gone[-1]}")
    if len(gone) == len(items):
        raise LikewiseError(f"drop: all {len(items)} rows of {items.name} would go; nothing would be left")
    keep = np.setdiff1d(np.arange(len(items)), gone)
    columns = {}
    for name in ("y", "x", "split", "query", "gallery", "gallery_name", "group", "box", "weight", "y_clean"):
        column = getattr(items, name)
        columns[name] = None if column is None else column[keep]
    labels = columns["y"] if items.y_clean is None else np.concatenate([columns["y"], columns["y_clean"]])
    left, new = np.unique(labels, return_inverse=True)
    columns["y"] = new[: len(keep)].astype(items.y.dtype)
    if items.y_clean is not None:  # a class only the clean labels still know stays, so that they keep a meaning
        columns["y_clean"] = new[len(keep) :].astype(items.y_clean.dtype)
    names = tuple(items.class_name[label] for label in left)
    path = None if items.path is None else tuple(items.path[row] for row in keep)
    tree = items.taxonomy
    if tree is not None:
        tree = {name: tree[name] for name in names if name in tree}
    return dataclasses.replace(items, class_name=names, path=path, taxonomy=tree, **columns)
