"""iNaturalist 2018."""

from __future__ import annotations

import os

from likewise.data.downloads import Original
from likewise.data.folder import image_files, sub_folders
from likewise.types import Items, LikewiseError

SET = Original(
    "inaturalist",
    "The set is iNaturalist 2018 of the FGVC5 competition: unpack train_val2018.tar.gz, and beside it the "
    "Inat_dataset_splits published with Smooth-AP",
    images=461_939,
    classes=8_142,
)
PICTURES = ["train_val2018", "train2018"]


def inaturalist(root: str) -> Items:
    """Species, each below one of 14 kinds of life (its ancestor in the taxonomy).

    Paper: Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018;
    the split of Brown et al., Smooth-AP, ECCV 2020.
    Reads Inaturalist_train_set1.txt and Inaturalist_test_set1.txt, in root or Inat_dataset_splits/. Without these
    lists: the class folders train_val2018/<kind>/<class>/, the first half of the classes train, the second test.

    Args:
        root: the folder with train_val2018/.
    """
    base = SET.folder(root)
    lists = {part: f"Inaturalist_{part}_set1.txt" for part in ("train", "test")}
    places = {part: [f"Inat_dataset_splits/{name}", name] for part, name in lists.items()}
    if any(SET.find(base, place) for place in places.values()):
        path, split = [], []
        for part, place in places.items():
            files = [" ".join(words).removeprefix("./") for _, words in SET.lines(SET.need(base, place))]
            path += files
            split += [part] * len(files)
        label = [class_of(file, split[row], lists) for row, file in enumerate(path)]
        SET.check_listed(base, path, " with ".join(lists.values()))
    else:
        path, label = in_folders(base)
        order = sorted(set(label))
        first = set(order[: len(order) // 2])
        split = ["train" if one in first else "test" for one in label]
    names = {one: f"{one[0]}/{one[2]}" for one in label}
    return SET.items(base, path, label, names, split, taxonomy={names[one]: (one[0],) for one in names})


def in_folders(base: str) -> tuple[list[str], list[tuple[str, int, str]]]:
    top = os.path.basename(SET.need(base, PICTURES))
    kinds = sub_folders(os.path.join(base, top))
    folders = [f"{top}/{kind}/{name}" for kind in kinds for name in sub_folders(os.path.join(base, top, kind))]
    path = [file for folder in folders for file in image_files(base, folder)]
    if not path:
        raise LikewiseError(f"inaturalist: {base}/{top} must hold <kind>/<class>/ folders with pictures. {SET.origin}")
    return path, [key(*file.split("/")[1:3]) for file in path]


def class_of(file: str, part: str, lists: dict[str, str]) -> tuple[str, int, str]:
    words = file.split("/")
    if len(words) < 3:
        raise LikewiseError(f"inaturalist: {lists[part]} must list <kind>/<class>/<picture>, got {file!r}")
    return key(words[-3], words[-2])


def key(kind: str, name: str) -> tuple[str, int, str]:
    """Sorts classes by kind, then by number where they are numbers, as those of 2018 are."""
    return kind, int(name) if name.isdigit() else -1, name
