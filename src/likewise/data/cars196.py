"""Stanford Cars."""

from __future__ import annotations

import os

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original
from likewise.data.folder import class_files
from likewise.data.taxonomies import known

PUBLISHED_SET = Original(
    "cars196",
    "The set is Cars of Stanford University: unpack car_ims.tgz beside cars_annos.mat, or sort the images into "
    "images/<class>/",
    images=16_185,
    classes=196,
)
TRAIN_IMAGES, TRAIN_CLASSES = 8_054, 98


def cars196(root: str) -> Items:
    """Cars of 196 models: the first 98 classes train, the last 98 test.

    Paper: Krause et al., 3D Object Representations for Fine-Grained Categorization, 2013;
    the split of Song et al., CVPR 2016.
    Reads cars_annos.mat with car_ims/ (needs scipy), or class folders below images/. Class ids of the first differ from
    the order of folder names in the second within each half, so the split is the same but class numbers differ. The taxonomy is
    the body type.

    Args:
        root: the folder with cars_annos.mat, or with images/.
    """
    base = PUBLISHED_SET.folder(root)
    notes = PUBLISHED_SET.find(base, ["cars_annos.mat", "devkit/cars_annos.mat"])
    if notes is None and PUBLISHED_SET.find(base, ["images"]) is None:
        PUBLISHED_SET.need(base, ["cars_annos.mat", "devkit/cars_annos.mat", "images/<class>/"])
    path, label, names = listed(base, notes) if notes else in_folders(base)
    split = ["train" if in_first_half(names[one], one) else "test" for one in label]
    items = PUBLISHED_SET.items(base, path, label, names, split, taxonomy=known("cars196-type", names.values()))
    train, train_classes = (
        split.count("train"),
        len({one for one, part in zip(label, split, strict=True) if part == "train"}),
    )
    wrong = items.classes == PUBLISHED_SET.classes and train_classes != TRAIN_CLASSES
    if wrong or (len(items) == PUBLISHED_SET.images and train != TRAIN_IMAGES):
        raise LikewiseError(
            f"cars196: the first half must be {TRAIN_IMAGES:,} images of {TRAIN_CLASSES} classes, got {train:,} of "
            f"{train_classes}; the class folders do not have their original names, so the split would "
            "differ: rename them"
        )
    return items


def in_first_half(name: str, label: int | str) -> bool:
    """Whether a class belongs to the training half: by class id, or by name if there is no id.

    By name, the first 98 classes are the makes from AM General to Eagle, so the rule also holds for a subset of the classes.
    """
    if isinstance(label, int):
        return label <= TRAIN_CLASSES
    return name.casefold() < "f"


def listed(base: str, notes: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from cars_annos.mat."""
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError:
        raise LikewiseError(
            "cars196: reading cars_annos.mat needs scipy, which is not installed; install scipy, or sort the images "
            "into images/<class>/"
        ) from None
    try:
        read = loadmat(notes, squeeze_me=True, struct_as_record=True)
        rows, classes = read["annotations"].reshape(-1), read["class_names"].reshape(-1)
        path = [str(name) for name in rows["relative_im_path"]]
        label = [int(one) for one in rows["class"]]
    except (MatReadError, ValueError, KeyError, TypeError, OSError, IndexError, NotImplementedError) as error:
        raise LikewiseError(
            f"cars196: {notes} must hold annotations (relative_im_path, class) and class_names, but reading it failed "
            f"({error}); download it again"
        ) from None
    names = {number: str(name) for number, name in enumerate(classes.tolist(), 1)}
    if not set(label) <= names.keys():
        raise LikewiseError(
            f"cars196: class_names has {len(names)} names, but the labels go up to {max(label)}; download it again"
        )
    PUBLISHED_SET.check_listed(base, path, "cars_annos.mat")
    return path, label, names


def in_folders(base: str) -> tuple[list[str], list, dict]:
    """Return paths, labels and class names from the class folders below images/."""
    found = [(folder, f"images/{file}") for folder, file in class_files(os.path.join(base, "images"))]
    if not found:
        raise LikewiseError(
            f"cars196: {base}/images must hold class folders with images, got none. {PUBLISHED_SET.origin}"
        )
    ids = all(folder.isdigit() for folder, _ in found)
    label = [int(folder) if ids else folder for folder, _ in found]
    return [file for _, file in found], label, {one: folder for one, (folder, _) in zip(label, found, strict=True)}
