"""Market-1501, person re-identification."""

from __future__ import annotations

import os
import re

import numpy as np

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original
from likewise.data.folder import is_image

PUBLISHED_SET = Original(
    "market1501",
    "The set is Market-1501 (Tsinghua University): unpack Market-1501-v15.09.15.zip",
    images=36_036,
    classes=1_503,
)
FOLDER_NAMES = {"bounding_box_train": "train", "query": "query", "bounding_box_test": "gallery"}
FILE_NAME = r"(-1|\d+)_c(\d+)"  # person and camera: 0002_c1s1_000451_03.jpg
OTHER_NAMES = {-1: "junk", 0: "distractor"}  # class names of numbers that are not a person


def market1501(root: str) -> Items:
    """People in front of six cameras; a class is a person. The test rows are divided into queries and gallery.

    Paper: Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015.
    Reads bounding_box_train/, query/ and bounding_box_test/; person and camera are in the file names (0002_c1s1_000451_03.jpg),
    also as DukeMTMC-reID writes them (0002_c1_f0044158.jpg). Person 0 are distractors: gallery images of no query. Person -1 is
    junk: no query counts these images as right or wrong.

    Args:
        root: the folder of the benchmark, with bounding_box_train/.
    """
    base = PUBLISHED_SET.folder(root)
    found = [one for folder in FOLDER_NAMES for one in rows(base, folder)]
    path, person, camera, status = (list(column) for column in zip(*found, strict=True))
    return PUBLISHED_SET.items(
        base,
        path,
        person,
        {one: OTHER_NAMES.get(one, f"{one:04d}") for one in person},
        np.where(np.array(status) == "train", "train", "test"),
        query=np.array(status) == "query",
        gallery=np.array(status) == "gallery",
        camera=np.array(camera),
        junk=np.array(person) == -1,
    )


def rows(base: str, folder: str) -> list[tuple[str, int, str, str]]:
    """Return (image, person, camera, status) of every image of a folder, sorted by file name."""
    files = sorted(filter(is_image, os.listdir(PUBLISHED_SET.need(base, [folder]))))
    listed = []
    for file in files:
        words = re.match(FILE_NAME, file)
        if words is None:
            raise LikewiseError(
                f"market1501: a file name must begin with person and camera, as 0002_c1s1_000451_03.jpg, got {folder}/{file}; "
                "unpack the set again"
            )
        listed.append((f"{folder}/{file}", int(words[1]), f"c{words[2]}", FOLDER_NAMES[folder]))
    if not listed:
        raise LikewiseError(f"market1501: {folder} must hold images, got none; unpack the set again")
    return listed
