"""Choose the samples whose images are on the page, and read these images."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Int

from likewise.core.errors import printable
from likewise.data.dataset import data_folders, outside_files_warning
from likewise.data.images import file_of
from likewise.report.records import Pool, RankedQuery, RunView
from likewise.report.section import Studies
from likewise.report.target import MOVED_DATA_HINT
from likewise.report.thumbnails import read_thumbnails


def add_images(studies: Studies, compared: Sequence, say: Callable[[str], None]) -> list[Pool]:
    """Return the pools with images. Every pool gets an equal share of `max_images`."""
    share = max(0, studies.config.max_images) // max(1, len(studies.pools))
    shown = [places_shown(number, studies.views, compared) for number in range(len(studies.pools))]
    return [with_images(number, studies, first, share, say) for number, first in enumerate(shown)]


def places_shown(number: int, views: Sequence[RunView], compared: Sequence) -> list[int]:
    """Return the places of a pool that galleries, comparisons and confusions show, the most important first."""
    here = [view.found for view in views if view.pool == number]
    galleries = [found.get("galleries", {}) for found in here]
    queries: list[RankedQuery] = []
    for kind in ("worst", "best", "random"):
        queries += chain.from_iterable(interleave([some.get(kind, ()) for some in galleries]))
    queries += chain.from_iterable(both for one in compared if views[one.a].pool == number for both in one.queries)
    confused = chain.from_iterable(found["confusion"].pairs[:20] for found in here if "confusion" in found)
    pairs = [pair.example for pair in confused if pair.example]
    classes = [one for some in galleries for kind in ("each class", "each label") for one in some.get(kind, ())]
    in_order = chain(map(query_and_neighbours, queries), pairs, map(query_and_neighbours, classes))
    return list(dict.fromkeys(chain.from_iterable(in_order)))


def interleave(lists: Sequence[Sequence[RankedQuery]]) -> Iterator[list[RankedQuery]]:
    """Yield the first item of every list, then the second of every list, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield [some[place] for some in lists if place < len(some)]


def query_and_neighbours(query: RankedQuery) -> list[int]:
    """Return the places of a query and of its neighbours."""
    return [query.place, *(one.place for one in query.neighbours)]


def choose_image_places(
    label: Int[np.ndarray, "N"], first: list[int], most: int, seed: int = 0
) -> Int[np.ndarray, "p"]:
    """Return at most `most` places that get an image: those in `first`, in order, then others spread over the classes."""
    drawn = np.random.default_rng(seed).permutation(len(label))
    by_class = drawn[np.argsort(label[drawn], kind="stable")]
    turn = np.arange(len(label)) - np.searchsorted(label[by_class], label[by_class])  # 0, 1, ... within each class
    spread = by_class[np.argsort(turn, kind="stable")]
    both = np.concatenate([np.array(first, np.int64), spread])
    return both[np.sort(np.unique(both, return_index=True)[1])][:most]


def with_images(number: int, studies: Studies, first: list[int], most: int, say: Callable[[str], None]) -> Pool:
    """Return the pool with images, read from the data set, or from the paths saved with the embeddings.

    Args:
        number: index of the pool.
        first: places that get an image before others.
        most: largest number of images.
    """
    pool, config = studies.pools[number], studies.config
    here = [one for one, view in zip(studies.targets, studies.views) if view.pool == number]
    whole = next((one.data for one in here if one.data is not None and one.data.path is not None), None)
    items, rows = (whole, pool.row) if whole is not None else (here[0].items, np.arange(len(pool.row)))
    assert items is not None
    places = choose_image_places(pool.label, first, most, config.seed)
    found, error = read_thumbnails(
        items, rows[places].tolist(), title=f"read images of {pool.name}", quiet=config.quiet
    )
    place = dict(zip(rows[places].tolist(), places.tolist()))
    images = {place[row]: image for row, image in found.items()}
    if whole is None:  # the paths come from an embedding file
        folders = [items.root, *data_folders(here[0].settings)]
        warning = outside_files_warning([os.path.abspath(file_of(items, row)) for row in found], folders)
        if warning:
            say(printable(f"{pool.name}: {warning}"))
    studies.notes.extend([f"{pool.name}: {error}; {MOVED_DATA_HINT}"] if error else [])
    return dataclasses.replace(pool, images=images)
