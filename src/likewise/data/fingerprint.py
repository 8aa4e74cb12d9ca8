"""Fingerprint of a data set, from its table and the sizes of its files."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable

import numpy as np

from likewise.core.types import Items
from likewise.core.vectors import blocks_of
from likewise.data.images import check_files, file_of


def fingerprint(items: Items) -> str:
    """Return the SHA-256 of a data set: paths below root, all columns, class names, skipped images, and file sizes
    (features: their bytes), and the labels of every class if samples have several.

    It does not depend on the location of root or the name of the data set. Image files are not read, so it is fast.
    """
    digest = hashlib.sha256()

    def add(name: str, value: bytes) -> None:
        digest.update(f"{name} {len(value)}\n".encode())  # the length prefix makes the stream unambiguous
        digest.update(value)

    def add_words(name: str, words: Iterable[str]) -> None:
        add(
            name,
            b"".join(b"%d:" % len(word) + word for word in (str(w).encode("utf-8", "surrogateescape") for w in words)),
        )

    add_words("class_name", items.class_name)
    for name, kind in (("y", "<i8"), ("y_clean", "<i8"), ("group", "<i8"), ("query", "?"), ("gallery", "?"), ("junk", "?"),
                       ("box", "<f8"), ("weight", "<f8"), ("x", "<f4")):  # fmt: skip
        column = getattr(items, name)
        if column is not None:
            digest.update(f"{name} {column.shape} {np.dtype(kind).itemsize * math.prod(column.shape)}\n".encode())
            for _, block in blocks_of(column) if name == "x" else ((0, column),):
                digest.update(np.ascontiguousarray(block, dtype=kind))
    for name in ("split", "gallery_name", "camera", "votes"):
        if getattr(items, name) is not None:
            add_words(name, getattr(items, name))
    if items.label_name is not None and items.label_sets is not None:
        add_words("label_name", items.label_name)
        add_words("label_sets", (" ".join(map(str, one)) for one in items.label_sets))
    if items.taxonomy is not None:
        for name in sorted(items.taxonomy):
            add_words("taxonomy", (name, *items.taxonomy[name]))
    if items.path is not None:
        base = os.path.join(items.root, "")
        add_words("path", (p.removeprefix(base) if items.root else p for p in items.path))
        if items.skipped:
            add_words("skipped", (word for row, p in items.skipped for word in (str(row), p.removeprefix(base))))
        if items.x is None:
            try:
                sizes = [os.stat(file_of(items, row)).st_size for row in range(len(items))]
            except OSError:
                check_files(items)  # raises an error that names the missing files
                raise
            add("sizes", np.asarray(sizes, "<i8").tobytes())
    return digest.hexdigest()
