"""A folder with one sub-folder per class, optionally below train/, val/ and test/."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from likewise.io.image_files import IMAGE_SUFFIXES
from likewise.types import Items, LikewiseError

SPLITS = ("train", "val", "test")


def read_folder(root: str) -> Items:
    """Every sub-folder is a class, sorted by name; pictures are found by suffix at any depth below it.

    Hidden files are left out, and so are classes without a picture. If the sub-folders are train, val, test (two of
    them at least) and hold class folders themselves, they are the split, and a class may stand in several.
    """
    root = os.path.abspath(os.path.expanduser(root))
    if not os.path.isdir(root):
        raise LikewiseError(
            f"folder: {root} must be a folder with one sub-folder per class, and there is no such folder"
        )
    parts = split_folders(root)
    found = [(part, name, file) for part in parts or [""] for name, file in class_files(root, part)]
    if not found:
        raise LikewiseError(
            f"folder: the class folders of {root} must hold pictures, and there is none in them; "
            f"pictures end in one of: {' '.join(sorted(IMAGE_SUFFIXES))}"
        )
    names = sorted({name for _, name, _ in found})
    number = {name: place for place, name in enumerate(names)}
    return Items(
        name=Path(root).name,
        y=np.array([number[name] for _, name, _ in found], np.int64),
        class_name=tuple(names),
        path=tuple(file for _, _, file in found),
        root=root,
        split=np.array([part for part, _, _ in found], "<U5") if parts else None,
    )


def is_flat(root: str) -> bool:
    """Whether this is a folder with pictures in it and no sub-folder."""
    root = os.path.expanduser(root)
    return os.path.isdir(root) and not sub_folders(root) and any(is_image(name) for name in os.listdir(root))


def read_flat(root: str) -> Items:
    """The pictures of a folder without class folders, all in one class called unlabelled."""
    root = os.path.abspath(os.path.expanduser(root))
    path = tuple(sorted(name for name in os.listdir(root) if is_image(name)))
    return Items(
        name=Path(root).name, y=np.zeros(len(path), np.int64), class_name=("unlabelled",), path=path, root=root
    )


def split_folders(root: str) -> list[str]:
    """Those of train, val, test that divide the data; none if the sub-folders are classes."""
    folders = sub_folders(root)
    if not folders:
        raise LikewiseError(
            f"folder: {root} must hold one sub-folder per class, and it has no sub-folder; sort the pictures into some"
        )
    parts = [name for name in SPLITS if name in folders]
    if len(parts) < 2:
        return []
    deep = [name for name in parts if sub_folders(os.path.join(root, name))]
    if not deep:
        return []
    others = sorted(set(folders) - set(parts))
    if others:
        raise LikewiseError(
            f"folder: {root} has {', '.join(parts)} beside {', '.join(others[:5])}; keep either only train, val, test "
            "with class folders in each, or only class folders"
        )
    if deep != parts:
        flat = [name for name in parts if name not in deep]
        raise LikewiseError(
            f"folder: {', '.join(deep)} of {root} hold class folders, but {', '.join(flat)} does not; sort it too"
        )
    return parts


def sub_folders(root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def class_files(root: str, part: str = "") -> list[tuple[str, str]]:
    """(class, path below root) of every picture in the class folders of `root/part`, in sorted order."""
    top = os.path.join(root, part) if part else root
    return [(name, f) for name in sub_folders(top) for f in image_files(root, "/".join(filter(None, (part, name))))]


def image_files(root: str, below: str) -> list[str]:
    """Paths below `root` of the pictures at any depth of `root/below`, sorted; links are followed, each folder once."""
    found, seen = [], set()
    for folder, inner, files in os.walk(os.path.join(root, below), followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            inner.clear()
            continue
        seen.add(real)
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        place = os.path.relpath(folder, root).replace(os.sep, "/")
        found += [f"{place}/{name}" for name in files if is_image(name)]
    return sorted(found)


def is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
