"""A folder with one sub-folder per class, optionally below train/, val/ and test/."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np

from likewise.errors import MAX_SHOWN_NAMES, printable, shown_names
from likewise.io.image_files import IMAGE_SUFFIXES
from likewise.types import Items, LikewiseError

SPLIT_NAMES = ("train", "val", "test")


def read_folder(root: str) -> Items:
    """Read a folder of class folders: every sub-folder is a class, sorted by name; images are found by suffix at any depth.

    Hidden files are ignored. Other files that are no images, images beside the class folders and classes without an image are
    ignored too, and `notes` names them. If the sub-folders are train, val, test (at least two of them)
    and hold class folders themselves, they are the splits, and a class may be in several splits.
    """
    root = os.path.abspath(os.path.expanduser(root))
    if not os.path.isdir(root):
        raise LikewiseError(
            f"folder: {root} must be a folder with one sub-folder per class, but it does not exist; check the path"
        )
    splits = split_folders(root)
    others: list[str] = []
    found = [(split, name, file) for split in splits or [""] for name, file in class_files(root, split, others)]
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
        notes=ignored_notes(root, splits, set(names), others),
    )


def ignored_notes(root: str, splits: list[str], classes: set[str], others: list[str]) -> tuple[str, ...]:
    """Return one sentence for each kind of ignored content: empty class folders, images beside them, files that are no images.

    Args:
        classes: the classes that have an image.
        others: files in the class folders that are no images.
    """
    tops = [os.path.join(root, split) for split in splits] or [root]
    empty = sorted({name for top in tops for name in sub_folders(top)} - classes)
    beside = [entry.name for top in {root, *tops} for entry in os.scandir(top) if is_visible_file(entry)]
    loose = [name for name in beside if is_image(name)]
    notes = []
    if empty:
        notes.append(f"ignored class folders without an image ({len(empty)}): {shown_names(empty)}")
    if loose:
        notes.append(f"ignored images that are in no class folder ({len(loose)}): {shown_names(sorted(loose))}")
    return (*notes, *other_notes([*others, *beside]))


def other_notes(names: list[str]) -> tuple[str, ...]:
    """Return one sentence about the files that are no images, by suffix; an empty tuple if all are images."""
    kinds = Counter(os.path.splitext(name)[1].lower() or "no suffix" for name in names if not is_image(name))
    if not kinds:
        return ()
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(MAX_SHOWN_NAMES))
    more = ", ..." * (len(kinds) > MAX_SHOWN_NAMES)
    return (f"ignored files that are not images ({kinds.total()}): {printable(shown)}{more}",)


def is_visible_file(entry: os.DirEntry) -> bool:
    return entry.is_file() and not entry.name.startswith(".")


def is_flat(root: str) -> bool:
    """Whether this is a folder with images in it and no sub-folder."""
    root = os.path.expanduser(root)
    return os.path.isdir(root) and not sub_folders(root) and any(is_image(name) for name in os.listdir(root))


def read_flat(root: str) -> Items:
    """Read the images of a folder without class folders, all in one class named "unlabelled"."""
    root = os.path.abspath(os.path.expanduser(root))
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if is_visible_file(entry))
    path = tuple(filter(is_image, names))
    y, notes = np.zeros(len(path), np.int64), other_notes(names)
    return Items(name=Path(root).name, y=y, class_name=("unlabelled",), path=path, root=root, notes=notes)


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


def class_files(root: str, split: str = "", others: list[str] | None = None) -> list[tuple[str, str]]:
    """Return (class, path below root) of every image in the class folders of `root/split`, sorted; see `image_files`."""
    top = os.path.join(root, split) if split else root
    below = {name: "/".join(filter(None, (split, name))) for name in sub_folders(top)}
    return [(name, file) for name, place in below.items() for file in image_files(root, place, others)]


def image_files(root: str, below: str, others: list[str] | None = None) -> list[str]:
    """Return the sorted paths, relative to `root`, of all images below `root/below`; links are followed, each folder once.

    Args:
        others: a list that receives the names of the other files that are not hidden.
    """
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
        if others is not None:
            others += [name for name in files if not is_image(name) and not name.startswith(".")]
    return sorted(found)


def is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
