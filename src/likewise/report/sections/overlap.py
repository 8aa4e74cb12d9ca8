"""Section "Error overlap": the classes with the most retrieval errors of each run, and the overlap between runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from likewise.core.settings.label_settings import Audit
from likewise.core.types import LikewiseError
from likewise.report.section import Packing, ReportTarget, Section, Studies
from likewise.score.error_overlap import ErrorOverlap, describe_overlap, named_by, read_errors
from likewise.score.error_overlap import check_same_queries as must_have_same_classes

MAX_NAMED_CLASSES = 10
"""Classes with the most retrieval errors that are compared, as in `likewise audit --overlap`."""


def find_overlap(targets: Sequence[ReportTarget]) -> tuple[ErrorOverlap | None, str]:
    """Return the classes with the most retrieval errors of each run and ""; None and an error message if that fails."""
    try:
        runs = [
            dataclasses.replace(read_errors(str(one.run.path)), run=one.name) for one in targets if one.run is not None
        ]
        k = min(MAX_NAMED_CLASSES, len(runs[0].names))
        must_have_same_classes(runs, Audit(tuple(one.name for one in targets), k=k))
        found = {by: named_by(by, runs, k) for by in ("count", "rate")}
    except LikewiseError as error:
        return None, str(error)
    return ErrorOverlap(
        tuple(one.run for one in runs), tuple(one.method for one in runs), k, len(runs[0].names), found
    ), ""


def of_page(studies: Studies) -> ErrorOverlap | None:
    """Return the error overlap of the runs of the first pool; None for fewer than two runs."""
    both = zip(studies.targets, studies.views)
    shared = [one for one, view in both if one.run is not None and one.queries and view.pool == 0]
    if len(shared) < 2:
        return None
    overlap, error = find_overlap(shared)
    studies.notes.extend([error] if error else [])
    return overlap


def pack(found: ErrorOverlap, packing: Packing) -> dict:
    ways = {
        way: {"classes": named.classes, "heat": named.heat.astype(int), "sentence": sentence(found, way)}
        for way, named in found.by.items()
    }
    return {"runs": found.runs, "methods": found.methods, "by": ways}


def sentence(found: ErrorOverlap, way: str) -> str:
    """Return the overlap as a sentence with a capital letter and a full stop."""
    text = describe_overlap(found, way)
    return f"{text[:1].upper()}{text[1:]}."


SECTION = Section(
    "overlap", "Error overlap", "Classes with the most retrieval errors", of_page=of_page, pack=pack, folded=True
)
