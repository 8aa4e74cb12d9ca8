"""Maps that take minutes (t-SNE, UMAP): they are drawn once the page is there with its map by PCA."""

from __future__ import annotations

import dataclasses

from likewise.config import Report
from likewise.report.neighbours import as_tensor
from likewise.report.parts import vectors_of
from likewise.report.records import Viewed
from likewise.report.sections.map import unfold, wanted


def slow_map(seen: Viewed, config: Report) -> str:
    """Return the name of the map that a run lacks yet; "": none."""
    return wanted(len(seen.found["map"]["PCA"]), config)[0] if "map" in seen.found else ""


def add_slow_map(target: str, seen: Viewed, config: Report) -> Viewed:
    """Return a run with the map that it lacks. Its embeddings are read again: those of one run at a time are in memory."""
    way = slow_map(seen, config)
    if not way:
        return seen
    x, similarity = vectors_of(target, config)
    drawn = unfold(as_tensor(x, similarity), seen.name, similarity, way, config)
    return dataclasses.replace(seen, found=seen.found | {"map": seen.found["map"] | {way: drawn}})
