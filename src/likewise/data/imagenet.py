"""ImageNet-1k."""

from __future__ import annotations

import os
import re

from likewise.core.types import Items, LikewiseError
from likewise.data.downloads import Original
from likewise.data.folder import class_files

PUBLISHED_SET = Original(
    "imagenet",
    "The set is ILSVRC 2012 of image-net.org: unpack ILSVRC2012_img_train.tar, and the archive of each class into "
    "train/<wnid>/",
    images=1_281_167,
    classes=1_000,
)


def imagenet(root: str) -> Items:
    """The training images of ImageNet-1k: classes sorted by WordNet id, the first half train, the second half test.

    Paper: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
    Reads train/nXXXXXXXX/; a val/ beside it is not used. The class name is the WordNet id.

    Args:
        root: the folder with train/, or with ILSVRC/Data/CLS-LOC/train/.
    """
    base = PUBLISHED_SET.folder(root)
    train = PUBLISHED_SET.need(base, ["train", "ILSVRC/Data/CLS-LOC/train", "Data/CLS-LOC/train"])
    base = os.path.dirname(train)
    found = class_files(base, "train")
    if not found:
        raise LikewiseError(f"imagenet: {train} must hold class folders with images, got none. {PUBLISHED_SET.origin}")
    label = [name for name, _ in found]
    names = {name: name for name in label}
    for name in names:
        if not re.fullmatch(r"n\d{8}", name):
            raise LikewiseError(
                f"imagenet: class folders must be named by WordNet id such as n01440764, got {name!r} in {train}; rename them"
            )
    first = set(sorted(names)[: len(names) // 2])
    split = ["train" if name in first else "test" for name in label]
    return PUBLISHED_SET.items(base, [file for _, file in found], label, names, split)
