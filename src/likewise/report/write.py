"""report: runs and embeddings -> one HTML page about them, which opens anywhere."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from likewise._version import __version__
from likewise.config import Report, check
from likewise.errors import printable
from likewise.io.files import check_out
from likewise.report import projection
from likewise.report.class_tree import group_classes
from likewise.report.opened import Opened
from likewise.report.page import write_page
from likewise.report.pairwise import set_beside, share_errors
from likewise.report.pictures import with_doubts, with_pictures
from likewise.report.records import Asked, Compared, Facts, Pool, Viewed
from likewise.report.run_analysis import as_tensor, unfold, view, wanted
from likewise.report.targets import open_target, tell_apart, vectors_of
from likewise.runs.hierarchy import read_hierarchy
from likewise.types import LikewiseError


def report(config: Report, say: Callable[[str], None] = print) -> Path:
    """Find out everything about what is named, and write the page."""
    check(config)
    if not config.runs:
        raise LikewiseError("report: at least one run folder must be named, got none; `likewise report runs/mine`")
    if config.map in projection.NEEDS:
        projection.must_have(config.map)  # before anything that takes long
    facts = find_facts(config, say)
    for name, note in ((seen.name, note) for seen in facts.runs for note in seen.notes):
        say(printable(f"{name}: {note}", keep="\n"))
    file = write_page(facts, place_of(config), config.quiet)
    slow = [way for seen in facts.runs if seen.maps and (way := wanted(len(seen.maps["PCA"]), config)[0])]
    if not slow:
        return file
    say(f"page: {file} (its map by PCA until {slow[0]} is drawn)")
    runs = tuple(unfolded(target, seen, config) for target, seen in zip(config.runs, facts.runs, strict=True))
    return write_page(dataclasses.replace(facts, runs=runs), file, config.quiet)


def unfolded(target: str, seen: Viewed, config: Report) -> Viewed:
    """The same with its second map, which takes its time, so that the page is there before it."""
    way = wanted(len(seen.maps["PCA"]), config)[0] if seen.maps else ""
    if not way:
        return seen
    x, similarity = vectors_of(target, config)
    z = as_tensor(x, similarity)
    return dataclasses.replace(seen, maps=seen.maps | {way: unfold(z, seen.name, similarity, way, config)})


def place_of(config: Report) -> Path:
    """Where the page goes: where it is wanted, into the folder of a single run, or here."""
    if config.out:
        return check_out(config.out, ".html", "report")
    only = Path(config.runs[0]).expanduser()
    return (only if len(config.runs) == 1 and only.is_dir() else Path()) / "report.html"


def find_facts(config: Report, say: Callable[[str], None]) -> Facts:
    """One target after the other, so that the embeddings of one alone are in memory; then what they are beside each other."""
    opened, viewed, pools, data = [], [], {}, {}
    for target, name in zip(config.runs, tell_apart(config.runs), strict=True):
        one = open_target(target, name, config, data, say)
        key = None if one.items is None else key_of(one)
        if key is not None and key not in pools:
            pools[key] = make_pool(one)
        number = -1 if key is None else list(pools).index(key)
        viewed.append(view(one, number, pools.get(key), config))
        opened.append(
            one if one.items is None else dataclasses.replace(one, items=dataclasses.replace(one.items, x=None))
        )
    every, notes = list(pools.values()), list(asked_apart(list(pools), viewed))
    compared = tuple(beside(opened, viewed, every, config, notes))
    overlap = None
    shared = [one for one, seen in zip(opened, viewed) if one.run is not None and one.queries and seen.pool == 0]
    if len(shared) > 1:
        overlap, why = share_errors(shared)
        notes += [why] if why else []
    share = max(0, config.pictures) // max(1, len(every))
    for number, pool in enumerate(every):
        first = places_shown(number, viewed, compared)
        every[number], note = with_pictures(pool, number, opened, viewed, first, share, config, say)
        notes += [note] if note else []
    viewed = [with_doubts(one, seen, config) for one, seen in zip(opened, viewed)]
    made = f"likewise {__version__}: {shlex.join(['likewise', 'report', *config.runs])}"
    title = ", ".join(dict.fromkeys(pool.name for pool in every)) or ", ".join(seen.name for seen in viewed)
    return Facts(title, tuple(viewed), tuple(every), compared, overlap, tuple(notes), made)


def key_of(one: Opened) -> tuple:
    """What two must have in common to be shown on the same samples: the samples, then what was asked."""
    assert one.items is not None and one.row is not None
    own = one.items.y.tobytes(), one.items.class_name, one.items.path
    samples = (one.row.tobytes(), *((one.run.about["data"],) if one.run is not None else own))
    relevant = None if one.queries is None else one.queries.relevant.astype(np.int64).tobytes()
    return samples, *(side.tobytes() for side in one.sides), relevant


def asked_apart(keys: Sequence[tuple], viewed: Sequence[Viewed]) -> Iterator[str]:
    """What is said of those that share their samples, and no more."""
    for samples, times in Counter(key[0] for key in keys).items():
        if times > 1:
            names = ", ".join(seen.name for seen in viewed if seen.pool >= 0 and keys[seen.pool][0] == samples)
            yield f"{names}: the same samples, but others of them ask or answer, so these scores are not to be compared"


def make_pool(one: Opened) -> Pool:
    """The samples that a run was scored on."""
    items = one.items
    assert items is not None and one.row is not None
    groupings = group_classes(items.class_name, None if one.data is None else one.data.taxonomy)
    learned = None if one.run is None else read_hierarchy(one.run.path)
    groupings += () if learned is None else group_classes(items.class_name, learned, "learned level")
    path = items.path or (one.data.path and [one.data.path[r] for r in one.row] if one.data is not None else None)
    caption = None if path is None else tuple(os.path.basename(p.replace("\\", "/")) for p in path)
    name = items.name if one.data is None else one.data.name
    return Pool(name, one.part, one.row, items.y, items.class_name, groupings, caption)


def beside(
    opened: Sequence[Opened], viewed: Sequence[Viewed], pools: Sequence[Pool], config: Report, notes: list[str]
) -> Iterator[Compared]:
    """Each further run of a pool with the first; where that cannot be, why not is noted."""
    for number, pool in enumerate(pools):
        here = [i for i, seen in enumerate(viewed) if seen.pool == number and opened[i].queries is not None]
        for other in here[1:]:
            try:
                yield set_beside(here[0], other, opened, viewed, pool, config.top, config.seed)
            except LikewiseError as error:
                notes.append(f"{viewed[here[0]].name} and {viewed[other].name} are not compared ({error})")


def places_shown(number: int, viewed: Sequence[Viewed], compared: Sequence[Compared]) -> list[int]:
    """Samples of a pool that the page shows in any case, the most important first."""
    here = [seen for seen in viewed if seen.pool == number]
    asked: list[Asked] = []
    for kind in ("worst", "best", "random"):
        asked += chain.from_iterable(zip_all([seen.galleries.get(kind, ()) for seen in here]))
    asked += chain.from_iterable(both for one in compared if viewed[one.a].pool == number for both in one.queries)
    pairs = [pair.example for seen in here if seen.confusion for pair in seen.confusion.pairs[:20] if pair.example]
    classes = [one for seen in here for one in seen.galleries.get("each class", ())]
    in_order = chain(map(with_answers, asked), pairs, map(with_answers, classes))
    return list(dict.fromkeys(chain.from_iterable(in_order)))


def zip_all(lists: Sequence[Sequence[Asked]]) -> Iterator[list[Asked]]:
    """The first of every list, then the second of every list, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield [some[place] for some in lists if place < len(some)]


def with_answers(asked: Asked) -> list[int]:
    return [asked.place, *(answer.place for answer in asked.answers)]
