"""A folder with one sub-folder per class, optionally below train/, val/ and test/."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from likewise.io.image_files import IMAGE_SUFFIXES
from likewise.types import Items, LikewiseError

SPLIT_NAMES = ("train", "val", "test")


def read_folder(root: str) -> Items:
    """Read a folder of class folders: every sub-folder is a class, sorted by name; images are found by suffix at any depth.

    Hidden files and classes without an image are ignored. If the sub-folders are train, val, test (at least two of them)
    and hold class folders themselves, they are the splits, and a class may be in several splits.
    """
    root = os.path.abspath(os.path.expanduser(root))
    if not os.path.isdir(root):
        raise LikewiseError(
            f"folder: {root} must be a folder with one sub-folder per class, but it does not exist; check the path"
        )
    splits = split_folders(root)
    found = [(split, name, file) for split in splits or [""] for name, file in class_files(root, split)]
    if not found:
        raise LikewiseError(
            f"folder: the class folders of {root} must hold images, got none; "
            f"images end in one of: {' '.join(sorted(IMAGE_SUFFIXES))}"
        )
    names = sorted({name for _, name, _ in found})
    number = {name: place for place, name in enumerate(names)}
    return Items(
        name=Path(root).name,
        y=np.array([number[name] for _, name, _ in found], np.int64),
        class_name=tuple(names),
        path=tuple(file for _, _, file in found),
        root=root,
        split=np.array([split for split, _, _ in found], "<U5") if splits else None,
    )


def is_flat(root: str) -> bool:
    """Whether this is a folder with images in it and no sub-folder."""
    root = os.path.expanduser(root)
    return os.path.isdir(root) and not sub_folders(root) and any(is_image(name) for name in os.listdir(root))


def read_flat(root: str) -> Items:
    """Read the images of a folder without class folders, all in one class named "unlabelled"."""
    root = os.path.abspath(os.path.expanduser(root))
    path = tuple(sorted(name for name in os.listdir(root) if is_image(name)))
    return Items(
        name=Path(root).name, y=np.zeros(len(path), np.int64), class_name=("unlabelled",), path=path, root=root
    )


def split_folders(root: str) -> list[str]:
    """Return those of train, val, test that are split folders; an empty list if the sub-folders are classes."""
    folders = sub_folders(root)
    if not folders:
        raise LikewiseError(
            f"folder: {root} must hold one sub-folder per class, got no sub-folder; sort the images into class folders"
        )
    splits = [name for name in SPLIT_NAMES if name in folders]
    if len(splits) < 2:
        return []
    deep = [name for name in splits if sub_folders(os.path.join(root, name))]
    if not deep:
        return []
    others = sorted(set(folders) - set(splits))
    if others:
        raise LikewiseError(
            f"folder: {root} has {', '.join(splits)} beside {', '.join(others[:5])}; keep either only train, val, test "
            "with class folders in each, or only class folders"
        )
    if deep != splits:
        flat = [name for name in splits if name not in deep]
        raise LikewiseError(
            f"folder: {', '.join(deep)} of {root} hold class folders, but {', '.join(flat)} does not; sort them too"
        )
    return splits


def sub_folders(root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def class_files(root: str, split: str = "") -> list[tuple[str, str]]:
    """Return (class, path below root) of every image in the class folders of `root/split`, sorted."""
    top = os.path.join(root, split) if split else root
    return [(name, f) for name in sub_folders(top) for f in image_files(root, "/".join(filter(None, (split, name))))]


def image_files(root: str, below: str) -> list[str]:
    """Return the sorted paths, relative to `root`, of all images below `root/below`; links are followed, each folder once."""
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
