"""The samples that runs were scored on. Runs of the same data that ask the same queries share a pool."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from likewise.report.class_tree import group_classes
from likewise.report.opened import Opened
from likewise.report.records import Pool, Viewed
from likewise.runs.hierarchy import read_hierarchy


def key_of(one: Opened) -> tuple:
    """What two must have in common to be shown on the same samples: the samples, then what was asked."""
    assert one.items is not None and one.row is not None
    own = one.items.y.tobytes(), one.items.class_name, one.items.path
    samples = (one.row.tobytes(), *((one.run.about["data"],) if one.run is not None else own))
    relevant = None if one.queries is None else one.queries.relevant.astype(np.int64).tobytes()
    return samples, *(side.tobytes() for side in one.query_gallery), relevant


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
