"""Maps that take minutes (t-SNE, UMAP): they are computed after a first page with the PCA map was written."""

from __future__ import annotations

import dataclasses

from likewise.core.settings import Report
from likewise.report.neighbours import as_tensor
from likewise.report.records import RunView
from likewise.report.sections.map import choose_slow_map, draw_slow_map
from likewise.report.splits import vectors_of


def slow_map(view: RunView, config: Report) -> str:
    """Return the name of the slow map of a run, "t-SNE" or "UMAP"; "" if it has none."""
    return choose_slow_map(len(view.found["map"]["PCA"]), config)[0] if "map" in view.found else ""


def add_slow_map(target: str, view: RunView, config: Report) -> RunView:
    """Return the run with its slow map. The embeddings are read again, so that memory holds those of one run at a time."""
    way = slow_map(view, config)
    if not way:
        return view
    x, similarity = vectors_of(target, config)
    drawn = draw_slow_map(as_tensor(x, similarity), view.name, similarity, way, config)
    return dataclasses.replace(view, found=view.found | {"map": view.found["map"] | {way: drawn}})
