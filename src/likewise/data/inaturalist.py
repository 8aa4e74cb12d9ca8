"""iNaturalist 2018."""

from __future__ import annotations

import json
import os

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original
from likewise.data.folder import sub_folders, walk_images

PUBLISHED_SET = Original(
    "inaturalist",
    "The set is iNaturalist 2018 of the FGVC5 competition: unpack train_val2018.tar.gz, and beside it the "
    "Inat_dataset_splits published with Smooth-AP; for ranks above the species also categories.json",
    images=461_939,
    classes=8_142,
)
IMAGE_FOLDERS = ["train_val2018", "train2018"]
CATEGORY_FILES = ["categories.json", "val2018.json", "train2018.json"]
"""Files of the competition that may have the ranks of every species, the smallest first."""

RANK_NAMES = ("phylum", "class", "order", "family", "genus")
"""Ranks of the taxonomy below the iconic group, coarsest first."""

ClassKey = tuple[str, int, str]
"""Iconic group, number and name of a class, by which classes are sorted."""


def inaturalist(root: str) -> Items:
    """Species in a taxonomy: 14 iconic groups (Aves, Plantae, ...), and below them phylum, class, order, family and genus.

    Paper: Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018;
    the split of Brown et al., Smooth-AP, ECCV 2020.
    Reads Inaturalist_train_set1.txt and Inaturalist_test_set1.txt, in root or Inat_dataset_splits/. Without these
    lists: the class folders train_val2018/<kind>/<class>/, the first half of the classes train, the second test.
    Reads the ranks from categories.json, or from the categories of val2018.json or train2018.json, in root (57 classes, 272
    orders, 1,118 families, 4,401 genera), and the names of the species. Without them, the taxonomy has only the iconic groups.

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
    categories = read_categories(base)
    found = {name: None if categories is None else category_of(one, categories) for one, name in names.items()}
    taxonomy = {name: (one[0], *(() if (ranks := found[name]) is None else ranks[:-1])) for one, name in names.items()}
    words = {name: one[-1] for name, one in found.items() if one is not None}
    return PUBLISHED_SET.items(base, path, label, names, split, taxonomy=taxonomy, class_words=words or None)


def read_categories(base: str) -> dict[int, tuple[str, ...]] | None:
    """Return category number -> its ranks, coarsest first, and the species, from the first file that has them; else None."""
    for name in CATEGORY_FILES:
        file = os.path.join(base, name)
        if not os.path.isfile(file):
            continue
        try:
            with open(file, encoding="utf-8-sig") as text:
                content = json.load(text)
            listed = content if isinstance(content, list) else content["categories"]
            if all(rank in category for category in listed for rank in RANK_NAMES):
                return {int(one["id"]): tuple(str(one[rank]) for rank in (*RANK_NAMES, "name")) for one in listed}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LikewiseError(
                f"inaturalist: {name} must be JSON with a list of categories, each with its id, got an error ({error!r}); "
                "unpack it again, or remove it"
            ) from None
    return None  # the first release of the competition hid the ranks


def category_of(one: ClassKey, categories: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the ranks and the species of a class; raise if the list of categories does not have it."""
    if one[1] not in categories:
        raise LikewiseError(
            f"inaturalist: the list of categories must have every class, but {one[0]}/{one[2]} is missing; use the list of 2018"
        )
    return categories[one[1]]


def in_folders(base: str) -> tuple[list[str], list[ClassKey]]:
    """Return paths and class keys from the class folders."""
    top = os.path.basename(PUBLISHED_SET.need(base, IMAGE_FOLDERS))
    kinds = sub_folders(os.path.join(base, top))
    folders = [f"{top}/{kind}/{name}" for kind in kinds for name in sub_folders(os.path.join(base, top, kind))]
    path = [file for _, file in walk_images(base, folders).images]
    if not path:
        raise LikewiseError(
            f"inaturalist: {base}/{top} must hold <kind>/<class>/ folders with images, got none. {PUBLISHED_SET.origin}"
        )
    return path, [key(*file.split("/")[1:3]) for file in path]


def class_of(file: str, split: str, lists: dict[str, str]) -> ClassKey:
    """Return the class key of a path in the list of a split."""
    words = file.split("/")
    if len(words) < 3:
        raise LikewiseError(
            f"inaturalist: {lists[split]} must list <kind>/<class>/<image>, got {file!r}; unpack it again"
        )
    return key(words[-3], words[-2])


def key(kind: str, name: str) -> ClassKey:
    """Return a sort key of a class: by kind, then by number if the name is a number (as in 2018), then by name."""
    return kind, int(name) if name.isdigit() else -1, name
