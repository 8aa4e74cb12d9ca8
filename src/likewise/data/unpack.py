"""Unpack the splits of an image data set into the cache, as image files and a table."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.files import cache_folder, write_csv
from likewise.core.image_files import IMAGE_SUFFIXES, formats, open_image
from likewise.data.label_sets import LABEL_SEPARATOR

ERROR_OWNER = "hf"
"""Name at the start of error messages."""
SPLIT_OF_NAME = {"train": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test"}
"""Name of a split on the hub -> split of the table."""
UNKNOWN_SUFFIX = ".img"
"""Suffix for bytes that are not an image in a known format."""


class SeveralLabels(NamedTuple):
    """The kind of a column with a list of labels in every row: the names of a ClassLabel, or the type of the labels."""

    each: str | list[str]


Kind = str | list[str] | SeveralLabels


@dataclass(frozen=True, eq=False)
class SplitFiles:
    """A split of a data set. `kinds` maps each column to "image", the names of a ClassLabel, its type, or `SeveralLabels`."""

    kinds: dict[str, Kind]
    fingerprint: str
    rows: Any  # (image column, label column) -> iterator over ({"bytes", "path"}, label)
    within: Sequence[str] | None = None  # folders where images named by path may be; None: anywhere


def choose(kinds: dict[str, Kind], wish: dict[str, str]) -> tuple[str, str]:
    """Return the image column and the label column: as named in `wish`, or the only candidates."""
    images = [name for name, kind in kinds.items() if kind == "image"]
    named = [name for name, kind in kinds.items() if isinstance(each_label(kind), list)]
    labels = named or [name for name in kinds if name in ("label", "labels")]
    chosen = []
    for role, found in (("image", images), ("label", labels)):
        if role in wish and wish[role] not in kinds:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no column '{wish[role]}'{nearest_name(wish[role], kinds)} It has: {', '.join(kinds)}"
            )
        if role not in wish and len(found) != 1:
            candidates = f"several, {', '.join(found)}" if found else f"none among {', '.join(kinds)}"
            raise LikewiseError(
                f"{ERROR_OWNER}: one column must hold the {role}, but there are {candidates}; name it: ?{role}=COLUMN"
            )
        chosen.append(wish.get(role) or found[0])
    image, label = chosen
    if kinds[image] != "image":
        raise LikewiseError(
            f"{ERROR_OWNER}: column '{image}' must hold images (the feature Image), got {kinds[image]}; images are in: "
            f"{', '.join(images) or 'no column'}"
        )
    kind = each_label(kinds[label])
    if not isinstance(kind, list) and not re.match(r"u?int|(large_)?(string|utf8)", kind):
        raise LikewiseError(
            f"{ERROR_OWNER}: label must be classes, whole numbers or words, or lists of these, got '{label}' with {kinds[label]}"
            "; name another column: ?label=COLUMN"
        )
    return image, label


def unpack(splits: dict[str, SplitFiles], name: str, wish: dict[str, str]) -> Path:
    """Write the images as files and return the path of their table. The table is written last: if it exists, all files do."""
    splits = selected_splits(splits, wish.get("split"))
    image, label = choose(next(iter(splits.values())).kinds, wish)
    facts = [1, image, label, {name: split.fingerprint for name, split in splits.items()}]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    word = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    folder = cache_folder() / f"hf-{word}-{key}"
    table = folder / f"{word}.csv"
    if table.is_file():
        return table
    lines = []
    for part, split in splits.items():
        if not re.fullmatch(r"\w+([.-]\w+)*", part):  # the name becomes a folder of the cache
            raise LikewiseError(
                f"{ERROR_OWNER}: the name of a split must be a plain word, got {part!r}; rename the split"
            )
        choose(split.kinds, {"image": image, "label": label})  # raises if a split has other columns
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, (image_cell, cell) in enumerate(split.rows(image, label)):
            at = f"row {number} of {part}"
            file = write_image(folder, f"{part}/{number:06d}", image_cell, split.within, at)
            lines.append(
                (file, *class_of(cell, split.kinds[label], at), SPLIT_OF_NAME[part] if len(splits) > 1 else "")
            )
    several = isinstance(next(iter(splits.values())).kinds[label], SeveralLabels)
    head = ("path", "labels" if several else "label", *(() if several else ("class_name",)), "split")
    cut = len(head) if len(splits) > 1 else len(head) - 1
    write_csv(table, head[:cut], (line[:cut] for line in lines))
    return table


def each_label(kind: Kind) -> str | list[str]:
    """Return the kind of one label of a column."""
    return kind.each if isinstance(kind, SeveralLabels) else kind


def selected_splits(splits: dict[str, SplitFiles], wanted: str | None) -> dict[str, SplitFiles]:
    """Return the splits named in `wanted` (comma-separated); None: all."""
    names = wanted.split(",") if wanted else list(splits)
    for name in names:
        if name not in splits:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no split '{name}'{nearest_name(name, splits)} It has: {', '.join(splits)}"
            )
        if len(names) > 1 and name not in SPLIT_OF_NAME:
            raise LikewiseError(
                f"{ERROR_OWNER}: splits must be train, validation and test, got '{name}'; select splits: "
                f"?split={','.join(n for n in names if n in SPLIT_OF_NAME) or name}"
            )
    return {name: splits[name] for name in names}


def class_of(cell: Any, kind: Kind, at: str) -> tuple:
    """Return the label for the table, and its class name or ""; of several labels, their names in one cell."""
    if isinstance(kind, SeveralLabels):
        pairs = [class_of(one, kind.each, at) for one in cell] if cell else [class_of(None, kind.each, at)]
        names = [str(name or label) for label, name in pairs]
        if bad := [name for name in names if LABEL_SEPARATOR in name]:
            raise LikewiseError(
                f"{ERROR_OWNER}: a label must not hold '{LABEL_SEPARATOR}', which separates the labels of a row, got {bad[0]!r} "
                f"in {at}; rename it"
            )
        return (LABEL_SEPARATOR.join(names),)
    if cell is None or cell == "" or (isinstance(kind, list) and not (isinstance(cell, int) and 0 <= cell < len(kind))):
        raise LikewiseError(
            f"{ERROR_OWNER}: every row must have a label, got {cell!r} in {at}; select labelled splits: ?split=train"
        )
    return cell, kind[cell] if isinstance(kind, list) else ""


def write_image(folder: Path, name: str, cell: dict | None, within: Sequence[str] | None, at: str) -> str:
    """Write the bytes of an image, unless the file exists, and return its path below the folder."""
    content, path = (cell or {}).get("bytes"), (cell or {}).get("path")
    if content is None and path is not None:
        content = read_named(path, within, at)
    if content is None:
        raise LikewiseError(f"{ERROR_OWNER}: every row must have an image, but {at} has none; remove such rows first")
    suffix = os.path.splitext(path or "")[1].lower()
    file = name + (suffix if suffix in IMAGE_SUFFIXES else suffix_of(content))
    if not (folder / file).is_file() or (folder / file).stat().st_size != len(content):
        aside = folder / f"{file}.{os.getpid()}.part"
        aside.write_bytes(content)
        os.replace(aside, folder / file)
    return file


def read_named(path: str, within: Sequence[str] | None, at: str) -> bytes | None:
    """Return the bytes of an image that a row names by its path; None if there is no such file.

    A foreign table may name any file that the user can read: only images are copied, and only from the folders `within`.
    """
    if "\0" in path:
        return None
    file = os.path.realpath(os.path.join(within[0] if within else "", path))
    if within is not None and not any(Path(file).is_relative_to(os.path.realpath(folder)) for folder in within):
        raise LikewiseError(
            f"{ERROR_OWNER}: images must lie inside the data set, but {at} names {path!r}; write it again with save_to_disk, "
            "which embeds the images, or load it in Python and pass the Dataset itself"
        )
    if not os.path.isfile(file):
        return None
    if suffix_of(file) == UNKNOWN_SUFFIX:
        raise LikewiseError(
            f"{ERROR_OWNER}: {at} must name an image ({', '.join(formats())}), got {path!r}; remove such rows first"
        )
    return Path(file).read_bytes()


def suffix_of(content: bytes | str) -> str:
    """Return the suffix for the format of an image's bytes or file; `UNKNOWN_SUFFIX` if Pillow cannot identify it."""
    try:
        with open_image(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
            return f".{str(image.format).lower()}" if image.format else UNKNOWN_SUFFIX
    except Exception:  # Pillow raises many types
        return UNKNOWN_SUFFIX
