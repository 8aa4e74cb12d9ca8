"""Pools: the samples that runs were scored on. Runs with the same samples, queries and gallery share a pool."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from likewise.report.class_tree import group_classes
from likewise.report.records import Pool, RunView
from likewise.report.target import ReportTarget
from likewise.runs.scores import read_hierarchy


def key_of(one: ReportTarget) -> tuple:
    """Return the key of the pool of a target: first its samples, then its queries, gallery, relevant rows and their meaning."""
    assert one.items is not None and one.row is not None
    own = one.items.y.tobytes(), one.items.class_name, one.items.path
    samples = (one.row.tobytes(), *((one.run.about["data"],) if one.run is not None else own))
    relevant = None if one.queries is None else one.queries.relevant.astype(np.int64).tobytes()
    meaning = "" if one.queries is None else one.queries.meaning
    return samples, *(side.tobytes() for side in one.query_gallery), relevant, meaning


def note_different_queries(keys: Sequence[tuple], views: Sequence[RunView]) -> Iterator[str]:
    """Yield a note for each set of runs that were scored on the same samples with different queries, galleries or relevance."""
    for samples, times in Counter(key[0] for key in keys).items():
        if times > 1:
            names = ", ".join(view.name for view in views if view.pool >= 0 and keys[view.pool][0] == samples)
            yield f"{names}: the same samples with different queries, galleries or relevance, so these scores cannot be compared"


def make_pool(one: ReportTarget) -> Pool:
    """Return the pool of the samples that a target was scored on, with the groupings of its taxonomy and learned hierarchy."""
    items = one.items
    assert items is not None and one.row is not None
    groupings = group_classes(items.class_name, None if one.data is None else one.data.taxonomy)
    learned = None if one.run is None else read_hierarchy(one.run.path)
    groupings += () if learned is None else group_classes(items.class_name, learned, "learned level")
    path = items.path or (one.data.path and [one.data.path[r] for r in one.row] if one.data is not None else None)
    caption = None if path is None else tuple(os.path.basename(p.replace("\\", "/")) for p in path)
    name = items.name if one.data is None else one.data.name
    sets = {"label_name": items.label_name, "label_sets": items.label_sets}
    return Pool(name, one.split, one.row, items.y, items.class_name, groupings, caption, **sets)
