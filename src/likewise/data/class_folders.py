"""A folder with one sub-folder per class, optionally below train/, val/ and test/."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from likewise.core.errors import MAX_SHOWN_NAMES, printable, shown_names
from likewise.core.image_files import IMAGE_SUFFIXES
from likewise.core.types import Items, LikewiseError

SPLIT_NAMES = ("train", "val", "test")


class UnreadableFolder(LikewiseError):
    """Raised for a folder whose entries cannot be listed. Its cause is the error of the operating system."""


class Listing(NamedTuple):
    """The visible entries of a folder."""

    folders: dict[str, bool]  # name -> whether it is a link
    files: list[str]
    odd: list[tuple[str, str]]  # name and reason: dangling links, and images that are no regular files


@dataclass
class Walk:
    """What a walk below a folder found, in its order; all paths are relative to its root."""

    images: list[tuple[str, str]] = field(default_factory=list)  # (place where the walk started, path of an image)
    others: list[str] = field(default_factory=list)  # names of files that are no images
    left_out: list[tuple[str, str]] = field(default_factory=list)  # path and reason of what could not be read


def read_folder(root: str) -> Items:
    """Read a folder of class folders: every sub-folder is a class, sorted by name; images are found by suffix at any depth.

    Hidden files are ignored. Other files that are no images, images beside the class folders and classes without an image are
    ignored too, and `notes` names them. Links are followed, each folder once; `left_out` names links to a folder that is read
    already, dangling links, and folders that cannot be read. If the sub-folders are train, val, test (at least two of them)
    and hold class folders themselves, they are the splits, and a class may be in several splits.
    """
    root = os.path.abspath(os.path.expanduser(root))
    if not os.path.isdir(root):
        raise LikewiseError(
            f"folder: {root} must be a folder with one sub-folder per class, but it does not exist; check the path"
        )
    splits = split_folders(root)
    tops = splits or [""]
    places = {joined(top, name): (top, name) for top in tops for name in sub_folders(os.path.join(root, top))}
    walk = walk_images(root, list(places))
    if not walk.images:
        raise LikewiseError(
            f"folder: the class folders of {root} must hold images, got none; "
            f"images end in one of: {' '.join(sorted(IMAGE_SUFFIXES))}"
        )
    found = [(*places[place], file) for place, file in walk.images]
    names = sorted({name for _, name, _ in found})
    check_class_names(root, names)
    number = {name: place for place, name in enumerate(names)}
    beside = {top: list_folder(os.path.join(root, top)) for top in dict.fromkeys(["", *tops])}
    odd = [(joined(top, name), reason) for top, listing in beside.items() for name, reason in listing.odd]
    return Items(
        name=Path(root).name,
        y=np.array([number[name] for _, name, _ in found], np.int64),
        class_name=tuple(names),
        path=tuple(file for _, _, file in found),
        root=root,
        split=np.array([split for split, _, _ in found], "<U5") if splits else None,
        notes=ignored_notes(
            sorted({name for _, name in places.values()} - set(names)),
            [name for listing in beside.values() for name in listing.files],
            walk.others,
            names,
        ),
        left_out=(*odd, *walk.left_out),
    )


def check_class_names(root: str, names: list[str]) -> None:
    """Raise for a class name that tables cannot hold: they trim the blanks around a label."""
    first: dict[str, str] = {}
    for name in names:
        trimmed = name.strip()
        if not trimmed or first.setdefault(trimmed, name) != name:
            raise LikewiseError(
                f"folder: class folders must differ in more than the blanks around their names, because tables of labels trim "
                f"them, got {shown_names([first.get(trimmed, name), name] if trimmed else [name])} in {root}; rename one"
            )


def ignored_notes(empty: list[str], beside: list[str], others: list[str], names: list[str]) -> tuple[str, ...]:
    """Return one sentence for each kind of ignored content: empty class folders, images beside them, files that are no images.

    A last sentence names classes that differ only in case or in the Unicode form of their letters.

    Args:
        empty: class folders without an image.
        beside: files beside the class folders.
        others: files in the class folders that are no images.
        names: the classes.
    """
    loose = sorted(name for name in beside if is_image(name))
    notes, alike = [], defaultdict(list)
    if empty:
        notes.append(f"ignored class folders without an image ({len(empty)}): {shown_names(empty)}")
    if loose:
        notes.append(f"ignored images that are in no class folder ({len(loose)}): {shown_names(loose)}")
    notes += other_notes([*others, *beside])
    for name in names:
        alike[unicodedata.normalize("NFC", name).casefold()].append(name)
    if twins := [name for group in alike.values() if len(group) > 1 for name in group]:
        notes.append(f"class names that differ only in case or Unicode form are separate classes: {shown_names(twins)}")
    return tuple(notes)


def other_notes(names: list[str]) -> tuple[str, ...]:
    """Return one sentence about the files that are no images, by suffix; an empty tuple if all are images."""
    kinds = Counter(os.path.splitext(name)[1].lower() or "no suffix" for name in names if not is_image(name))
    if not kinds:
        return ()
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(MAX_SHOWN_NAMES))
    more = ", ..." * (len(kinds) > MAX_SHOWN_NAMES)
    return (f"ignored files that are not images ({kinds.total()}): {printable(shown)}{more}",)


def is_flat(root: str) -> bool:
    """Whether this is a folder with images in it and no sub-folder."""
    root = os.path.expanduser(root)
    return os.path.isdir(root) and not sub_folders(root) and any(map(is_image, list_folder(root).files))


def read_flat(root: str) -> Items:
    """Read the images of a folder without class folders, all in one class named "unlabelled"."""
    root = os.path.abspath(os.path.expanduser(root))
    listing = list_folder(root)
    path = tuple(filter(is_image, listing.files))
    return Items(
        name=Path(root).name, y=np.zeros(len(path), np.int64), class_name=("unlabelled",), path=path, root=root,
        notes=other_notes(listing.files), left_out=tuple(listing.odd),
    )  # fmt: skip


def split_folders(root: str) -> list[str]:
    """Return those of train, val, test that are split folders; an empty list if the sub-folders are classes."""
    folders = sub_folders(root)
    if not folders:
        files = list_folder(root).files
        images = sum(map(is_image, files))
        got = f"{images:,} image{'s' * (images != 1)} in it" if files else "the folder is empty"
        raise LikewiseError(
            f"folder: {root} must hold one sub-folder per class, got no sub-folder ({got}); sort the images into class folders, "
            "or give a table (.csv) with path,label"
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
    """Return the names of the sub-folders that are not hidden, sorted."""
    return [name for name in list_folder(root).folders if not name.startswith("__MACOSX")]


def list_folder(folder: str) -> Listing:
    """Return the entries of a folder that are not hidden, sorted by name. A regular entry costs no system call of its own."""
    found = Listing({}, [], [])
    try:
        with os.scandir(folder) as entries:
            visible = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda one: one.name)
    except OSError as error:
        raise UnreadableFolder(
            f"folder: {folder} must be a readable folder, but it cannot be read ({error.strerror}); check its permissions"
        ) from error
    for entry in visible:
        name = entry.name
        try:
            if entry.is_dir():
                found.folders[name] = entry.is_symlink()
            elif entry.is_file() or not (is_image(name) or entry.is_symlink()):
                found.files.append(name)
            else:
                found.odd.append(
                    (name, "the link leads nowhere" if entry.is_symlink() else "this is not a regular file")
                )
        except OSError as error:  # links in a circle, or into a folder that may not be read
            found.odd.append((name, f"the link cannot be followed ({error.strerror})"))
    return found


def class_files(root: str, split: str = "") -> list[tuple[str, str]]:
    """Return (class, path below root) of every image in the class folders of `root/split`, sorted; see `walk_images`."""
    below = {joined(split, name): name for name in sub_folders(os.path.join(root, split))}
    return [(below[place], file) for place, file in walk_images(root, list(below)).images]


def walk_images(root: str, places: list[str]) -> Walk:
    """Return the images below some sub-folders of `root`, in the order of these and sorted by path.

    Links are followed. Each real folder is entered once, by device and inode, and before any link to it; folders that contain
    `root` are not entered.
    """
    walk, entered = Walk(), ids_above(root)
    waiting, links = deque[tuple[str, str]](), deque[tuple[str, str]]()
    for place in places:
        (links if os.path.islink(os.path.join(root, place)) else waiting).append((place, place))
    while waiting or links:
        start, place = waiting.popleft() if waiting else links.popleft()
        folder = os.path.join(root, place)
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in entered:
                walk.left_out.append((place, "the link leads to a folder that is read already, or that contains it"))
                continue
            entered.add((status.st_dev, status.st_ino))
            listing = list_folder(folder)
        except (OSError, UnreadableFolder) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            walk.left_out.append((place, f"the folder cannot be read ({getattr(cause, 'strerror', None) or cause})"))
            continue
        for name, is_link in listing.folders.items():
            (links if is_link else waiting).append((start, joined(place, name)))
        walk.images += [(start, joined(place, name)) for name in listing.files if is_image(name)]
        walk.others += [name for name in listing.files if not is_image(name)]
        walk.left_out += [(joined(place, name), reason) for name, reason in listing.odd]
    order = {place: number for number, place in enumerate(places)}
    walk.images.sort(key=lambda one: (order[one[0]], one[1]))
    return walk


def ids_above(root: str) -> set[tuple[int, int]]:
    """Return device and inode of a folder and of all folders that contain it."""
    real = Path(os.path.realpath(root))
    return {(found.st_dev, found.st_ino) for found in map(os.stat, (real, *real.parents))}


def joined(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
