"""Which samples have their picture in the page, and the pictures themselves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Int

from likewise.data.images import file_of
from likewise.errors import printable
from likewise.report.opened import MOVED
from likewise.report.records import Asked, Pool, Viewed
from likewise.report.section import Studies
from likewise.report.thumbnails import read_small
from likewise.runs.dataset import data_folders, tell_outside


def add_pictures(studies: Studies, compared: Sequence, say: Callable[[str], None]) -> list[Pool]:
    """Return the pools with pictures; every pool has an equal share of those that may be shown."""
    share = max(0, studies.config.max_images) // max(1, len(studies.pools))
    shown = [places_shown(number, studies.viewed, compared) for number in range(len(studies.pools))]
    return [with_pictures(number, studies, first, share, say) for number, first in enumerate(shown)]


def places_shown(number: int, viewed: Sequence[Viewed], compared: Sequence) -> list[int]:
    """Samples of a pool that the page shows in any case, the most important first."""
    here = [seen.found for seen in viewed if seen.pool == number]
    galleries = [found.get("galleries", {}) for found in here]
    asked: list[Asked] = []
    for kind in ("worst", "best", "random"):
        asked += chain.from_iterable(zip_all([some.get(kind, ()) for some in galleries]))
    asked += chain.from_iterable(both for one in compared if viewed[one.a].pool == number for both in one.queries)
    confused = chain.from_iterable(found["confusion"].pairs[:20] for found in here if "confusion" in found)
    pairs = [pair.example for pair in confused if pair.example]
    classes = [one for some in galleries for one in some.get("each class", ())]
    in_order = chain(map(with_answers, asked), pairs, map(with_answers, classes))
    return list(dict.fromkeys(chain.from_iterable(in_order)))


def zip_all(lists: Sequence[Sequence[Asked]]) -> Iterator[list[Asked]]:
    """The first of every list, then the second of every list, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield [some[place] for some in lists if place < len(some)]


def with_answers(asked: Asked) -> list[int]:
    return [asked.place, *(answer.place for answer in asked.answers)]


def worth_a_picture(label: Int[np.ndarray, "N"], first: list[int], most: int, seed: int = 0) -> Int[np.ndarray, "p"]:
    """Which places get a picture: those that are shown anyway, in their order, then others spread over the classes."""
    drawn = np.random.default_rng(seed).permutation(len(label))
    by_class = drawn[np.argsort(label[drawn], kind="stable")]
    turn = np.arange(len(label)) - np.searchsorted(label[by_class], label[by_class])  # first, second, ... of its class
    spread = by_class[np.argsort(turn, kind="stable")]
    both = np.concatenate([np.array(first, np.int64), spread])
    return both[np.sort(np.unique(both, return_index=True)[1])][:most]


def with_pictures(number: int, studies: Studies, first: list[int], most: int, say: Callable[[str], None]) -> Pool:
    """Return the pool with pictures, read where the data stands now, or where it stood when its embeddings were saved.

    Args:
        number: that of the pool.
        first: places that have their picture before others.
        most: number of pictures, at most.
    """
    pool, config = studies.pools[number], studies.config
    here = [one for one, seen in zip(studies.opened, studies.viewed) if seen.pool == number]
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
    studies.notes.extend([f"{pool.name}: {wrong}; {MOVED}"] if wrong else [])
    return dataclasses.replace(pool, picture=pictures)
