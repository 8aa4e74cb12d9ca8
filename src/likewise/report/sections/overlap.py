"""Section "Wrong classes": the classes that each run is most wrong about, and whether runs agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from likewise.config.audit import Audit
from likewise.evaluation.overlap_runs import must_match as must_have_same_classes
from likewise.evaluation.overlap_runs import named_by, read_wrongs
from likewise.render.error_overlap import Overlapped, say_overlap
from likewise.report.opened import Opened
from likewise.report.section import Packing, Section, Studies
from likewise.types import LikewiseError

NAMED = 10
"""Classes that a run names as its most wrong, as in `likewise audit --overlap`."""


def share_errors(opened: Sequence[Opened]) -> tuple[Overlapped | None, str]:
    """The classes that each of these runs is most wrong about; None and why, where that cannot be told."""
    try:
        runs = [
            dataclasses.replace(read_wrongs(str(one.run.path)), run=one.name) for one in opened if one.run is not None
        ]
        k = min(NAMED, len(runs[0].names))
        must_have_same_classes(runs, Audit(tuple(one.name for one in opened), k=k))
        found = {by: named_by(by, runs, k) for by in ("count", "rate")}
    except LikewiseError as error:
        return None, str(error)
    return Overlapped(
        tuple(one.run for one in runs), tuple(one.method for one in runs), k, len(runs[0].names), found
    ), ""


def of_page(studies: Studies) -> Overlapped | None:
    """Return the overlap of the runs of the first pool, of two or more."""
    both = zip(studies.opened, studies.viewed)
    shared = [one for one, seen in both if one.run is not None and one.queries and seen.pool == 0]
    if len(shared) < 2:
        return None
    overlap, why = share_errors(shared)
    studies.notes.extend([why] if why else [])
    return overlap


def pack(found: Overlapped, packing: Packing) -> dict:
    ways = {
        way: {"classes": named.classes, "heat": named.heat.astype(int), "sentence": sentence(found, way)}
        for way, named in found.by.items()
    }
    return {"runs": found.runs, "methods": found.methods, "by": ways}


def sentence(found: Overlapped, way: str) -> str:
    told = say_overlap(found, way)
    return f"{told[:1].upper()}{told[1:]}."


SECTION = Section("overlap", "Wrong classes", "Classes that runs are most wrong about", of_page=of_page, pack=pack)
