"""The facts of a page as blocks that its code reads: first what is small, then what is large; and its pictures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PIL import Image

from likewise.report.blocks import Block, index_kind, many, said
from likewise.report.records import Facts, Pool, Viewed
from likewise.report.section import Packing, Section, load_sections

CAPTION_ROOM = 2_000_000
"""Characters for captions; beyond that, only samples with a picture keep theirs."""


def pictures(facts: Facts) -> list[Image.Image]:
    """All pictures of a page, those of sections first, then those of pools; blocks call them by their number."""
    own = [picture for run in facts.runs for section in load_sections() for picture in pictures_of(section, run)]
    return own + [picture for pool in facts.pools for picture in pool.picture.values()]


def pictures_of(section: Section, run: Viewed) -> list[Image.Image]:
    """The section's own pictures of a run."""
    return section.pictures(run.found[section.name]) if section.pictures and section.name in run.found else []


def first_blocks(facts: Facts) -> Iterator[Block]:
    """Yield `facts`, which is read at once (names, curves and all that is small), and `more`, what other sections show."""
    first, more, number = [], [], 0
    for run in facts.runs:
        about = {"name": run.name, "pool": run.pool, "decides": run.decides, "similarity": run.similarity}
        first.append(about)
        more.append({})
        for section in load_sections():
            if section.name in run.found:
                packed = pack(section, run.found[section.name], Packing(facts, run, number))
                (first if section.is_first else more)[-1][section.name] = packed
            number += len(pictures_of(section, run))
    yield said("facts", {"runs": first, "pools": [names(pool) for pool in facts.pools]})
    slots = []
    for pool in facts.pools:
        slots.append({place: number + i for i, place in enumerate(pool.picture)})
        number += len(pool.picture)
    whole = {
        section.name: pack(section, facts.found[section.name], Packing(facts))
        for section in load_sections()
        if section.name in facts.found
    }
    yield said("more", {"slots": slots, "runs": more, **whole})


def pack(section: Section, value: object, packing: Packing) -> object:
    return value if section.pack is None else section.pack(value, packing)


def many_blocks(facts: Facts) -> Iterator[Block]:
    """Yield what is large: labels and captions of pools, then what sections bring."""
    for number, pool in enumerate(facts.pools):
        if any("map" in run.found for run in facts.runs if run.pool == number) or pool.picture:
            yield many(f"label-{number}", pool.label.astype(index_kind(len(pool.class_name))))
            if not np.array_equal(pool.row, np.arange(len(pool.row))):  # else a row is its place
                yield many(f"row-{number}", pool.row.astype(np.int32))
            yield said(f"caption-{number}", captions(pool))
    for section in load_sections():
        if section.blocks is not None:
            yield from section.blocks(facts)


def names(pool: Pool) -> dict:
    groupings = [{"name": one.name, "names": one.names, "of": one.of_class} for one in pool.groupings]
    return {
        "name": pool.name,
        "part": pool.part,
        "n": len(pool.row),
        "classes": pool.class_name,
        "groupings": groupings,
    }


def captions(pool: Pool) -> dict[int, str] | list[str]:
    if pool.caption is None:
        return []
    if sum(map(len, pool.caption)) <= CAPTION_ROOM:
        return list(pool.caption)
    return {place: pool.caption[place] for place in pool.picture}
