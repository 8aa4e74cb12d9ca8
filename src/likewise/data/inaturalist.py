"""iNaturalist 2018."""

from __future__ import annotations

import os

from likewise.data.downloads import Original
from likewise.data.folder import image_files, sub_folders
from likewise.types import Items, LikewiseError

PUBLISHED_SET = Original(
    "inaturalist",
    "The set is iNaturalist 2018 of the FGVC5 competition: unpack train_val2018.tar.gz, and beside it the "
    "Inat_dataset_splits published with Smooth-AP",
    images=461_939,
    classes=8_142,
)
IMAGE_FOLDERS = ["train_val2018", "train2018"]


def inaturalist(root: str) -> Items:
    """Species; the ancestor of each in the taxonomy is one of 14 iconic groups, such as Aves or Plantae.

    Paper: Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018;
    the split of Brown et al., Smooth-AP, ECCV 2020.
    Reads Inaturalist_train_set1.txt and Inaturalist_test_set1.txt, in root or Inat_dataset_splits/. Without these
    lists: the class folders train_val2018/<kind>/<class>/, the first half of the classes train, the second test.

    Args:
        root: the folder with train_val2018/.
    """
    base = PUBLISHED_SET.folder(root)
    lists = {name: f"Inaturalist_{name}_set1.txt" for name in ("train", "test")}
    places = {name: [f"Inat_dataset_splits/{file}", file] for name, file in lists.items()}
    if any(PUBLISHED_SET.find(base, place) for place in places.values()):
        path, split = [], []
        for name, place in places.items():
            files = [
                " ".join(words).removeprefix("./") for _, words in PUBLISHED_SET.lines(PUBLISHED_SET.need(base, place))
            ]
            path += files
            split += [name] * len(files)
        label = [class_of(file, split[row], lists) for row, file in enumerate(path)]
        PUBLISHED_SET.check_listed(base, path, " with ".join(lists.values()))
    else:
        path, label = in_folders(base)
        order = sorted(set(label))
        first = set(order[: len(order) // 2])
        split = ["train" if one in first else "test" for one in label]
    names = {one: f"{one[0]}/{one[2]}" for one in label}
    return PUBLISHED_SET.items(base, path, label, names, split, taxonomy={names[one]: (one[0],) for one in names})


def in_folders(base: str) -> tuple[list[str], list[tuple[str, int, str]]]:
    """Return paths and class keys from the class folders."""
    top = os.path.basename(PUBLISHED_SET.need(base, IMAGE_FOLDERS))
    kinds = sub_folders(os.path.join(base, top))
    folders = [f"{top}/{kind}/{name}" for kind in kinds for name in sub_folders(os.path.join(base, top, kind))]
    path = [file for folder in folders for file in image_files(base, folder)]
    if not path:
        raise LikewiseError(
            f"inaturalist: {base}/{top} must hold <kind>/<class>/ folders with images, got none. {PUBLISHED_SET.origin}"
        )
    return path, [key(*file.split("/")[1:3]) for file in path]


def class_of(file: str, split: str, lists: dict[str, str]) -> tuple[str, int, str]:
    """Return the class key of a path in the list of a split."""
    words = file.split("/")
    if len(words) < 3:
        raise LikewiseError(
            f"inaturalist: {lists[split]} must list <kind>/<class>/<image>, got {file!r}; unpack it again"
        )
    return key(words[-3], words[-2])


def key(kind: str, name: str) -> tuple[str, int, str]:
    """Return a sort key of a class: by kind, then by number if the name is a number (as in 2018), then by name."""
    return kind, int(name) if name.isdigit() else -1, name
