"""The pictures that a report shows, small, read from where the data stands now."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np

from likewise.config import Report
from likewise.data.images import file_of
from likewise.errors import printable
from likewise.report.opened import MOVED, Opened
from likewise.report.queries import worth_a_picture
from likewise.report.records import Pool, Viewed
from likewise.report.thumbnails import read_small
from likewise.runs.dataset import data_folders, tell_outside
from likewise.types import Items


def with_pictures(
    pool: Pool,
    number: int,
    opened: Sequence[Opened],
    viewed: Sequence[Viewed],
    first: list[int],
    most: int,
    config: Report,
    say: Callable[[str], None],
) -> tuple[Pool, str]:
    """The pool with so many pictures, read where the data stands now, or where it stood when its embeddings were saved."""
    here = [one for one, seen in zip(opened, viewed) if seen.pool == number]
    whole = next((one.data for one in here if one.data is not None and one.data.path is not None), None)
    items, rows = (whole, pool.row) if whole is not None else (here[0].items, np.arange(len(pool.row)))
    assert items is not None
    places = worth_a_picture(pool.label, first, most, config.seed)
    found, wrong = read_small(items, rows[places].tolist(), title=f"read pictures of {pool.name}", quiet=config.quiet)
    place = dict(zip(rows[places].tolist(), places.tolist()))
    pictures = {place[row]: image for row, image in found.items()}
    if whole is None:  # an embedding file named them
        folders = [items.root, *data_folders(here[0].settings)]
        told = tell_outside([os.path.abspath(file_of(items, row)) for row in found], folders)
        if told:
            say(printable(f"{pool.name}: {told}"))
    return dataclasses.replace(pool, picture=pictures), f"{pool.name}: {wrong}; {MOVED}" if wrong else ""


def with_doubts(one: Opened, seen: Viewed, config: Report) -> Viewed:
    """The doubted labels with their pictures."""
    items: Items | None = one.data
    if seen.noise is None or not seen.noise.doubts or items is None or items.path is None or not config.pictures:
        return seen
    doubts = seen.noise.doubts
    found, _ = read_small(items, [doubt.row for doubt in doubts], title="read doubted pictures", quiet=config.quiet)
    doubts = tuple(dataclasses.replace(doubt, picture=found.get(doubt.row)) for doubt in doubts)
    return dataclasses.replace(seen, noise=dataclasses.replace(seen.noise, doubts=doubts))
