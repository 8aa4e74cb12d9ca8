"""DeepFashion, In-Shop Clothes Retrieval."""

from __future__ import annotations

import os

import numpy as np

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original

PUBLISHED_SET = Original(
    "inshop",
    "The set is the In-Shop Clothes Retrieval Benchmark of DeepFashion (CUHK): "
    "unpack its Eval (or Anno) list and img.zip",
    images=52_712,
    classes=7_982,
)
LIST_FILE = "list_eval_partition.txt"
HEADER_WORDS = ["image_name", "item_id", "evaluation_status"]


def inshop(root: str) -> Items:
    """Garments on models; a class is an item. The test rows are divided into queries and gallery.

    Paper: Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval, CVPR 2016.
    Reads list_eval_partition.txt in root, Eval/ or Anno/; its paths start from root or Img/.

    Args:
        root: the folder of the benchmark, with img/ or Img/img/.
    """
    base = PUBLISHED_SET.folder(root)
    listed = rows(PUBLISHED_SET.need(base, [LIST_FILE, f"Eval/{LIST_FILE}", f"Anno/{LIST_FILE}"]))
    path = [file for file, _, _ in listed]
    if not os.path.isfile(os.path.join(base, path[0])) and os.path.isdir(os.path.join(base, "Img/img")):
        path = [f"Img/{file}" for file in path]
    PUBLISHED_SET.check_listed(base, path, LIST_FILE)
    label = [item for _, item, _ in listed]
    status = np.array([word for _, _, word in listed])
    return PUBLISHED_SET.items(
        base,
        path,
        label,
        {item: item for item in label},
        np.where(status == "train", "train", "test"),
        query=status == "query",
        gallery=status == "gallery",
    )


def rows(file: str) -> list[tuple[str, str, str]]:
    """Return (image, item, status) of every line below the header. The line with the count above it is ignored."""
    lines = PUBLISHED_SET.lines(file)
    start = next((place for place, (_, words) in enumerate(lines[:2]) if words == HEADER_WORDS), None)
    if start is None:
        raise LikewiseError(
            f"inshop: the first or second line of {LIST_FILE} must be '{' '.join(HEADER_WORDS)}'; unpack the list again"
        )
    listed = PUBLISHED_SET.words(file, 3, skip=start + 1)
    for (number, _), words in zip(lines[start + 1 :], listed, strict=True):
        if words[2] not in ("train", "query", "gallery"):
            raise LikewiseError(
                f"inshop: evaluation_status must be train, query or gallery, got {words[2]!r} in {LIST_FILE} line {number}; "
                "unpack the list again"
            )
    return [(image, item, status) for image, item, status in listed]
