"""Read the images of items, check that their files exist, and drop rows."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps

from likewise.core.image_files import formats, open_image
from likewise.core.types import ROW_COLUMNS, Items, LikewiseError

MAX_SIDE_FACTOR = 100
"""Largest ratio of long side to short side: resizing sets the short side, and the long side grows with it."""

TIFF_BITS_TAG = 258
"""Tag of a TIFF file with the number of bits of a value."""

GREY_BITS_KEY = "likewise grey bits"
"""Key of `Image.info` under which `upright` stores the number of bits that a TIFF file declares."""


class BadImage(LikewiseError):
    """Raised for an image that cannot be used. The message names the file and the problem."""


class UnreadableFile(BadImage):
    """Raised for an image file that cannot be read now: it is missing, may not be opened, or memory is exhausted."""


def read_image(path: str | os.PathLike, box: Iterable[float] | None = None) -> Image.Image:
    """Read an image file as RGB: rotated by its EXIF tag, transparency on white, the first frame of an animation.

    Grey values of more than 8 bits are scaled by the full range that their file declares; see `to_8bit`.

    Args:
        box: left, top, right, bottom in pixels of the rotated image; None or NaN: the whole image.
    """
    try:
        if os.path.getsize(path) == 0:
            raise BadImage(f"{path}: the file is empty (0 bytes); download it again or drop it")
        with open_image(path) as image:
            image.load()
            image = to_rgb(upright(image))
    except BadImage:
        raise
    except FileNotFoundError:
        raise UnreadableFile(f"{path}: there is no such file; check the path and root") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadImage(
            f"{path}: the image has more pixels than is safe to decode (limit {2 * (Image.MAX_IMAGE_PIXELS or 0):,}); "
            "shrink it first"
        ) from None
    except Image.UnidentifiedImageError:
        raise BadImage(
            f"{path}: this is not an image in a known format ({', '.join(formats())}); drop it or convert it"
        ) from None
    except MemoryError:
        raise UnreadableFile(f"{path}: there is not enough memory to decode it; shrink it first") from None
    except Exception as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # from the system; decoders raise it without a number
            raise UnreadableFile(
                f"{path}: the file cannot be read ({error.strerror}); check the file and its permissions"
            ) from None
        raise BadImage(f"{path}: the image cannot be decoded ({error}); download it again or drop it") from None
    return check_shape(image if box is None else crop(image, np.asarray(tuple(box), np.float64), path), path)


def check_shape(image: Image.Image, owner: str | os.PathLike) -> Image.Image:
    """Return the image; raise if it is so narrow that resizing its short side would need very much memory."""
    if max(image.size) > MAX_SIDE_FACTOR * min(image.size):
        raise BadImage(
            f"{owner}: the long side of an image must be at most {MAX_SIDE_FACTOR} times the short side, got "
            f"{image.width} x {image.height}; crop it"
        )
    return image


def upright(image: Image.Image) -> Image.Image:
    """Return the image rotated by its EXIF tag; unchanged if the tag is damaged. `info` keeps the bits of a grey TIFF file."""
    try:
        turned = ImageOps.exif_transpose(image)
        if bits := getattr(image, "tag_v2", {}).get(TIFF_BITS_TAG):  # the rotated image has no tags
            turned.info[GREY_BITS_KEY] = bits[0]
        return turned
    except Exception:
        return image


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the image as RGB, with transparency on white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(to_8bit(np.asarray(image), image.mode, image.info.get(GREY_BITS_KEY, 16))).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        background = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(background, layer).convert("RGB")
    return image if image.mode == "RGB" and type(image) is Image.Image else image.convert("RGB")


def to_8bit(grey: np.ndarray, mode: str, bits: int = 16) -> np.ndarray:
    """Scale grey values to 8 bits. 16 bits: 65535 becomes 255; a TIFF file that declares 12 bits: 4095 becomes 255.

    A file that declares 16 bits and uses only 12 of them comes out dark. It cannot be distinguished from a dark image.
    Modes I and F have no fixed range: I within 0..65535 counts as 16 bits, F within 0..1 as a fraction and within 0..255 as
    8 bits; other values are scaled from their minimum to their maximum.
    """
    if not np.isfinite(grey).all():
        raise ValueError("it holds NaN or infinite pixels")
    low, high = float(grey.min()), float(grey.max())
    if mode != "F" and low >= 0 and high <= 65535:
        low, high = 0.0, 2.0**bits - 1 if 8 < bits < 16 else 65535.0
    elif mode == "F" and low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    span = (high - low) or 1.0
    return np.round((grey.astype(np.float64) - low) * (255 / span)).astype(np.uint8)


def crop(image: Image.Image, box: np.ndarray, path: str | os.PathLike) -> Image.Image:
    """Return the box of an image; the whole image if the box is NaN. `path` names the image in errors."""
    if np.isnan(box).all():
        return image
    left, top, right, bottom = box
    width, height = image.size
    # One pixel of slack: boxes are often given with rounded or 1-based corners.
    if not (-1 <= left < right <= width + 1 and -1 <= top < bottom <= height + 1):
        raise BadImage(
            f"{path}: the box must lie inside the image ({width} x {height}) as left top right bottom, "
            f"got {left:g} {top:g} {right:g} {bottom:g}; correct the box"
        )
    corners = (max(0, int(left)), max(0, int(top)), min(width, int(np.ceil(right))), min(height, int(np.ceil(bottom))))
    if corners[0] >= corners[2] or corners[1] >= corners[3]:
        raise BadImage(f"{path}: the box {left:g} {top:g} {right:g} {bottom:g} holds no pixel; correct the box")
    return image.crop(corners)


def file_of(items: Items, row: int) -> str:
    """Return the path of a row's image file."""
    assert items.path is not None
    return os.path.join(items.root, items.path[row])


def image_of(items: Items, row: int) -> Image.Image:
    """Return the image of a row, cropped to its box if it has one."""
    return read_image(file_of(items, row), None if items.box is None else items.box[row])


def check_files(items: Items, rows: Iterable[int] | None = None) -> None:
    """Raise unless every image file exists. Images are not opened; items without paths pass."""
    if items.path is None:
        return
    bad = []
    for row in range(len(items)) if rows is None else rows:
        try:
            status = os.stat(file_of(items, row))
            problem = "" if stat.S_ISREG(status.st_mode) else "not a file"
        except OSError as error:
            problem = "missing" if isinstance(error, FileNotFoundError) else (error.strerror or "unreadable")
        if problem:
            bad.append(f"{file_of(items, row)} ({problem})")
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        more += "; a name is not UTF-8, so the table may have another encoding" if not is_utf8("".join(bad[:3])) else ""
        raise LikewiseError(
            f"{items.name}: every image file must exist, but {len(bad)} cannot be used: {', '.join(bad[:3])}{more}; "
            "check root and the paths"
        )


def is_utf8(text: str) -> bool:
    """Return whether a text has no undecodable byte."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def drop(items: Items, rows: Iterable[int]) -> Items:
    """Return items without these rows. The remaining rows, and the classes that still have a row, are renumbered."""
    gone = np.unique(np.asarray(list(rows), np.int64))
    if len(gone) and not (gone[0] >= 0 and gone[-1] < len(items)):
        raise LikewiseError(
            f"drop: rows must lie in 0..{len(items) - 1}, got {gone[0]} to {gone[-1]}; correct the rows"
        )
    if len(gone) == len(items):
        raise LikewiseError(
            f"drop: all {len(items)} rows of {items.name} would be dropped; at least one row must remain"
        )
    keep = np.setdiff1d(np.arange(len(items)), gone)
    columns = {}
    for name in ("y", *(column for column in ROW_COLUMNS if column != "path")):
        column = getattr(items, name)
        columns[name] = None if column is None else column[keep]
    labels = columns["y"] if items.y_clean is None else np.concatenate([columns["y"], columns["y_clean"]])
    left, new = np.unique(labels, return_inverse=True)
    columns["y"] = new[: len(keep)].astype(items.y.dtype)
    if items.y_clean is not None:  # a class that only true labels use stays, so that they remain valid
        columns["y_clean"] = new[len(keep) :].astype(items.y_clean.dtype)
    names = tuple(items.class_name[label] for label in left)
    path = None if items.path is None else tuple(items.path[row] for row in keep)
    tree = items.taxonomy
    if tree is not None:
        tree = {name: tree[name] for name in names if name in tree}
    sets = {} if items.label_sets is None else kept_sets(items, left.tolist())
    return dataclasses.replace(items, class_name=names, path=path, taxonomy=tree, **columns, **sets)


def kept_sets(items: Items, classes: Iterable[int]) -> dict[str, Any]:
    """Return label_name and label_sets for some of the classes, in this order; labels are renumbered without gaps.

    If every class has one label, the data has single labels, and both are None.
    """
    if items.label_sets is None or items.label_name is None:
        return {"label_name": None, "label_sets": None}
    sets = [items.label_sets[c] for c in classes]
    if all(len(one) == 1 for one in sets):
        return {"label_name": None, "label_sets": None}
    labels = sorted({label for one in sets for label in one})
    number = {label: place for place, label in enumerate(labels)}
    return {
        "label_name": tuple(items.label_name[label] for label in labels),
        "label_sets": tuple(tuple(number[label] for label in one) for one in sets),
    }


def folders_of_paths(text: UInt8[np.ndarray, "T"], begin: Int[np.ndarray, "M"]) -> list[tuple[str, int, int]]:
    """Return every folder of some paths, the number of its paths, and the place of the first; empty paths are left out.

    It takes 0.2 s for a million paths.

    Args:
        text: the bytes of all paths, one after another.
        begin: where every path begins, and where the last ends.
    """
    import pyarrow as pa

    place = np.flatnonzero(np.diff(begin))
    at = np.flatnonzero((text == ord(os.sep)) | (text == ord(os.altsep or os.sep)))
    after = np.append(0, at + 1)[np.searchsorted(at, begin[1:])]  # behind the last separator of every path
    cuts = np.append(np.stack([begin[:-1], np.maximum(begin[:-1], after)], 1), begin[-1]).astype(np.int64)
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(np.ascontiguousarray(text))]
    parts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * (len(begin) - 1), buffers
    )  # folder, name, folder, ...
    even = pa.Array.from_buffers(pa.int64(), len(place), [None, pa.py_buffer(2 * place)])  # `pa.array` imports pandas
    found = parts.take(even).dictionary_encode()
    names = [os.path.dirname(name.decode("utf-8", "surrogateescape") + "x") for name in found.dictionary.to_pylist()]
    code = np.frombuffer(found.indices.buffers()[1] or b"", np.int32)[: len(place)]
    _, first, count = np.unique(code, return_index=True, return_counts=True)
    return list(zip(names, count.tolist(), place[first].tolist(), strict=True))
