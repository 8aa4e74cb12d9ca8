"""The splits of a picture table, written once into the cache as picture files with a table beside them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.errors import LikewiseError, nearest_name
from likewise.io.files import cache_folder, write_csv
from likewise.io.image_files import IMAGE_SUFFIXES, formats, open_picture

ERROR_OWNER = "hf"
PARTS = {"train": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test"}
UNKNOWN = ".img"
"""Suffix of bytes that are no picture in a known format."""


@dataclass(frozen=True, eq=False)
class SplitFiles:
    """Rows of a data set. `kinds` maps each column to "image", to the names of a ClassLabel, or to its type."""

    kinds: dict[str, str | list[str]]
    fingerprint: str
    rows: Any  # (image column, label column) -> iterator over ({"bytes", "path"}, label)
    within: Sequence[str] | None = None  # folders that hold the pictures that rows name by path; None: anywhere


def choose(kinds: dict[str, str | list[str]], wish: dict[str, str]) -> tuple[str, str]:
    """The image column and the label column: as named, or the only ones that can be meant."""
    images = [name for name, kind in kinds.items() if kind == "image"]
    labels = [name for name, kind in kinds.items() if isinstance(kind, list)] or [n for n in kinds if n == "label"]
    chosen = []
    for what, found in (("image", images), ("label", labels)):
        if what in wish and wish[what] not in kinds:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no column '{wish[what]}'{nearest_name(wish[what], kinds)} It has: {', '.join(kinds)}"
            )
        if what not in wish and len(found) != 1:
            many = f"several, {', '.join(found)}" if found else f"none among {', '.join(kinds)}"
            raise LikewiseError(
                f"{ERROR_OWNER}: one column must hold the {what}, and there are {many}; name it: ?{what}=COLUMN"
            )
        chosen.append(wish.get(what) or found[0])
    image, label = chosen
    if kinds[image] != "image":
        raise LikewiseError(
            f"{ERROR_OWNER}: column '{image}' must hold pictures (the feature Image), got {kinds[image]}; pictures are in: "
            f"{', '.join(images) or 'no column'}"
        )
    kind = kinds[label]
    if not isinstance(kind, list) and not re.match(r"u?int|(large_)?(string|utf8)", kind):
        raise LikewiseError(
            f"{ERROR_OWNER}: label must be classes, whole numbers or words, and '{label}' holds {kind}; name another: ?label=COLUMN"
        )
    return image, label


def unpack(splits: dict[str, SplitFiles], name: str, wish: dict[str, str]) -> Path:
    """Pictures as files with a table beside them; the table is written last, so where it is, all is there."""
    splits = some(splits, wish.get("split"))
    image, label = choose(next(iter(splits.values())).kinds, wish)
    facts = [1, image, label, {part: split.fingerprint for part, split in splits.items()}]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    word = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    folder = cache_folder() / f"hf-{word}-{key}"
    table = folder / f"{word}.csv"
    if table.is_file():
        return table
    lines = []
    for part, split in splits.items():
        if not re.fullmatch(r"\w+([.-]\w+)*", part):  # it becomes a folder of the cache
            raise LikewiseError(
                f"{ERROR_OWNER}: the name of a split must be a plain word, got {part!r}; rename the split"
            )
        choose(split.kinds, {"image": image, "label": label})  # knows what is wrong with a split that differs
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, (picture, cell) in enumerate(split.rows(image, label)):
            at = f"row {number} of {part}"
            file = put(folder, f"{part}/{number:06d}", picture, split.within, at)
            lines.append((file, *class_of(cell, split.kinds[label], at), PARTS[part] if len(splits) > 1 else ""))
    head = ("path", "label", "class_name", "split")
    write_csv(table, head if len(splits) > 1 else head[:3], lines if len(splits) > 1 else (line[:3] for line in lines))
    return table


def some(splits: dict[str, SplitFiles], wanted: str | None) -> dict[str, SplitFiles]:
    names = wanted.split(",") if wanted else list(splits)
    for name in names:
        if name not in splits:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no split '{name}'{nearest_name(name, splits)} It has: {', '.join(splits)}"
            )
        if len(names) > 1 and name not in PARTS:
            raise LikewiseError(
                f"{ERROR_OWNER}: splits must be train, validation and test, got '{name}'; take those you want: "
                f"?split={','.join(n for n in names if n in PARTS) or name}"
            )
    return {name: splits[name] for name in names}


def class_of(cell: Any, kind: str | list[str], at: str) -> tuple[Any, str]:
    """The label as a table has it, and its name."""
    if cell is None or cell == "" or (isinstance(kind, list) and not (isinstance(cell, int) and 0 <= cell < len(kind))):
        raise LikewiseError(
            f"{ERROR_OWNER}: every row must have a label, got {cell!r} in {at}; take splits that are labelled: ?split=train"
        )
    return cell, kind[cell] if isinstance(kind, list) else ""


def put(folder: Path, name: str, picture: dict | None, within: Sequence[str] | None, at: str) -> str:
    """Write a picture's own bytes, unless they are there; its path below the folder."""
    content, path = (picture or {}).get("bytes"), (picture or {}).get("path")
    if content is None and path is not None:
        content = read_named(path, within, at)
    if content is None:
        raise LikewiseError(
            f"{ERROR_OWNER}: every row must have a picture, and {at} has none; leave such rows out first"
        )
    suffix = os.path.splitext(path or "")[1].lower()
    file = name + (suffix if suffix in IMAGE_SUFFIXES else suffix_of(content))
    if not (folder / file).is_file() or (folder / file).stat().st_size != len(content):
        aside = folder / f"{file}.{os.getpid()}.part"
        aside.write_bytes(content)
        os.replace(aside, folder / file)
    return file


def read_named(path: str, within: Sequence[str] | None, at: str) -> bytes | None:
    """Return the bytes of a picture that a row names by its path; None where there is no such file.

    A foreign table may name any file that its reader can open: only pictures are copied, and only from `within`.
    """
    if "\0" in path:
        return None
    file = os.path.realpath(os.path.join(within[0] if within else "", path))
    if within is not None and not any(Path(file).is_relative_to(os.path.realpath(folder)) for folder in within):
        raise LikewiseError(
            f"{ERROR_OWNER}: pictures must lie inside the data set, and {at} names {path!r}; write it anew with save_to_disk, "
            "which takes the pictures in, or load it in Python and give the Dataset itself"
        )
    if not os.path.isfile(file):
        return None
    if suffix_of(file) == UNKNOWN:
        raise LikewiseError(
            f"{ERROR_OWNER}: {at} must name a picture ({', '.join(formats())}), and {path!r} is none; leave such rows out first"
        )
    return Path(file).read_bytes()


def suffix_of(content: bytes | str) -> str:
    """Return the suffix that fits a picture's bytes, or its file; `UNKNOWN` is found out when it is decoded."""
    try:
        with open_picture(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
            return f".{str(image.format).lower()}" if image.format else UNKNOWN
    except Exception:  # Pillow raises many kinds
        return UNKNOWN
