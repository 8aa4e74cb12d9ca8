"""Stanford Online Products."""

from __future__ import annotations

import os

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original

PUBLISHED_SET = Original(
    "sop",
    "The set is Online Products of Stanford University: unpack Stanford_Online_Products.zip and give that folder",
    images=120_053,
    classes=22_634,
)
HEADER_WORDS = ["image_id", "class_id", "super_class_id", "path"]


def sop(root: str) -> Items:
    """Products from web shops; a class is a product, its ancestor one of 12 kinds (bicycle, cabinet, ...).

    Paper: Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    Reads Ebay_train.txt and Ebay_test.txt, in root or Info_Files/; the images are in root or images/.

    Args:
        root: the folder Stanford_Online_Products, or the one above it.
    """
    base = PUBLISHED_SET.folder(root)
    inner = PUBLISHED_SET.find(base, ["Stanford_Online_Products"])
    base = inner or base
    path, label, split, kind = [], [], [], {}
    for split_name in ("train", "test"):
        for one, file in rows(
            PUBLISHED_SET.need(base, [f"Ebay_{split_name}.txt", f"Info_Files/Ebay_{split_name}.txt"])
        ):
            path.append(file)
            label.append(one)
            split.append(split_name)
            kind[one] = file.split("/")[0].removesuffix("_final")
    if not os.path.isfile(os.path.join(base, path[0])) and os.path.isdir(os.path.join(base, "images")):
        path = [f"images/{file}" for file in path]
    PUBLISHED_SET.check_listed(base, path, "Ebay_train.txt with Ebay_test.txt")
    names = {one: str(one) for one in label}
    taxonomy = {names[one]: (above,) for one, above in kind.items()}
    words = {name: above.replace("_", " ") for name, (above,) in taxonomy.items()}
    return PUBLISHED_SET.items(base, path, label, names, split, taxonomy=taxonomy, class_words=words)


def rows(file: str) -> list[tuple[int, str]]:
    """Return (class id, path) of every image in a list."""
    listed = PUBLISHED_SET.words(file, 4)
    if listed[0] != HEADER_WORDS:
        raise LikewiseError(
            f"sop: the first line of {os.path.basename(file)} must be '{' '.join(HEADER_WORDS)}', got '{' '.join(listed[0])}'; "
            "unpack the list again"
        )
    if len(listed) == 1:
        raise LikewiseError(f"sop: {os.path.basename(file)} must list at least one image, got none; unpack it again")
    try:
        return [(int(words[1]), words[3]) for words in listed[1:]]
    except ValueError as error:
        raise LikewiseError(
            f"sop: class_id in {os.path.basename(file)} must be a number ({error}); unpack it again"
        ) from None
