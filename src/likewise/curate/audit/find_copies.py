"""Copies among the samples of an audit: their rows, splits and boxes in, exact and near copies out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from PIL import Image

from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.near_duplicates import Duplicates, near_duplicates
from likewise.curate.audit.records import Subject
from likewise.data.copies import exact_copies, file_clusters, whole_or_box
from likewise.data.images import image_of


class Copies(NamedTuple):
    """Near duplicates of an audit: row of the data and number of the split of each sample, and pairs of these samples."""

    row: Int[np.ndarray, "N"]
    split_of: Int[np.ndarray, "N"]
    found: Duplicates

    def first_row(self) -> dict[int, int]:
        """Return row -> lowest row among its exact copies, for rows that have exact copies."""
        cluster = self.found.cluster
        lowest = np.full(int(cluster.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, cluster, self.row)
        several = np.bincount(cluster, minlength=len(lowest))[cluster] > 1
        return dict(zip(self.row[several].tolist(), lowest[cluster[several]].tolist()))


def find_copies(subject: Subject, quiet: bool = False) -> Copies:
    """Find exact and near duplicates over all splits."""
    row = np.concatenate([split.e.row.numpy() for split in subject.splits.values()])
    split_of = np.concatenate([np.full(len(split.e.row), n) for n, split in enumerate(subject.splits.values())])
    z = torch.cat([split.e.z for split in subject.splits.values()])
    items = subject.items
    show = None if items.path is None else lambda place: load_image(items, int(row[place]))
    vectors = exact_copies(items, row) if items.x is not None else None
    place = None
    if items.path is not None and items.box is not None:
        place = (file_clusters(items, row), [whole_or_box(items, one) for one in row.tolist()])
    with bar("find near duplicates", 100, quiet=quiet) as progress:
        found = near_duplicates(z, show, split_of, progress=progress.reach, vectors=vectors, place=place)
    if found.unread:
        subject.notes.append(f"{found.unread} images could not be read, so near duplicates of them are not found")
    return Copies(row, split_of, found)


def load_image(items: Items, row: int) -> Image.Image | None:
    """Return the image of a row; None if the data has no images, or if this one cannot be read."""
    if items.path is None:
        return None
    try:
        return image_of(items, row)
    except (LikewiseError, OSError):
        return None
