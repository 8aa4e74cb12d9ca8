"""CUB-200-2011: birds."""

from __future__ import annotations

import os

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original
from likewise.data.folder import class_files
from likewise.data.taxonomies import known

PUBLISHED_SET = Original(
    "cub200",
    "The set is Caltech-UCSD Birds-200-2011 of Caltech: unpack CUB_200_2011.tgz and give the folder CUB_200_2011",
    images=11_788,
    classes=200,
)
TRAIN_CLASSES = 100  # class ids start at 1: 1..100 train, 101..200 test


def cub200(root: str) -> Items:
    """Birds of 200 species: class ids 1 to 100 train, 101 to 200 test.

    Paper: Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011; the split of Song et al., CVPR 2016.
    Reads the original lists (images.txt, image_class_labels.txt, classes.txt), or, without images.txt, the class folders
    below images/. Bounding boxes are not used. The taxonomy is that of WordNet.

    Args:
        root: the folder CUB_200_2011, or the one above it.
    """
    base = PUBLISHED_SET.folder(root)
    inner = PUBLISHED_SET.find(base, ["CUB_200_2011/images"])
    base = os.path.dirname(inner) if inner else base
    PUBLISHED_SET.need(base, ["images", "CUB_200_2011/images"])
    path, label, names = listed(base) if PUBLISHED_SET.find(base, ["images.txt"]) else in_folders(base)
    split = ["train" if one <= TRAIN_CLASSES else "test" for one in label]
    return PUBLISHED_SET.items(base, path, label, names, split, taxonomy=known("cub200", names.values()))


def listed(base: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from the original lists."""
    files = {name: PUBLISHED_SET.need(base, [name]) for name in ("images.txt", "image_class_labels.txt", "classes.txt")}
    place = dict(PUBLISHED_SET.words(files["images.txt"], 2))
    of_image = dict(PUBLISHED_SET.words(files["image_class_labels.txt"], 2))
    if place.keys() != of_image.keys():
        odd = sorted(place.keys() ^ of_image.keys())
        raise LikewiseError(
            f"cub200: images.txt and image_class_labels.txt must list the same image ids, but {len(odd)} are in one "
            f"of them only, such as {odd[0]}; unpack both again"
        )
    try:
        name = {int(label): class_name(text) for label, text in PUBLISHED_SET.words(files["classes.txt"], 2)}
        label = [int(of_image[image]) for image in place]
    except ValueError as error:
        raise LikewiseError(f"cub200: class ids must be numbers ({error}); unpack the lists again") from None
    unknown = set(label) - name.keys()
    if unknown:
        raise LikewiseError(f"cub200: classes.txt must name every class, and class {min(unknown)} is not in it")
    path = [f"images/{text}" for text in place.values()]
    PUBLISHED_SET.check_listed(base, path, "images.txt")
    return path, label, name


def in_folders(base: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from the class folders below images/."""
    found = [(folder, f"images/{file}") for folder, file in class_files(os.path.join(base, "images"))]
    if not found:
        raise LikewiseError(
            f"cub200: {base}/images must hold class folders with images, got none. {PUBLISHED_SET.origin}"
        )
    for folder, _ in found:
        if not folder.split(".")[0].isdigit():
            raise LikewiseError(
                f"cub200: class folders must be named like 001.Black_footed_Albatross, got {folder!r}; "
                "without the number the split is not known"
            )
    label = [int(folder.split(".")[0]) for folder, _ in found]
    return [file for _, file in found], label, {int(f.split(".")[0]): class_name(f) for f, _ in found}


def class_name(folder: str) -> str:
    """Return the class name of a folder: 001.Black_footed_Albatross -> Black_footed_Albatross."""
    return folder.partition(".")[2] or folder
