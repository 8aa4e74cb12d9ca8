"""The same queries on both sides of a comparison: matched by row or by image file, and restricted to one sample."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

import numpy as np
from jaxtyping import Int

from likewise.core.types import LikewiseError
from likewise.runs.scores import PerQuery


def join(a: PerQuery, b: PerQuery, other_data: bool, advice: str = "") -> tuple[PerQuery, PerQuery]:
    """Return A and B with their queries in the same order; raises if the queries differ.

    Args:
        advice: end of the error, with a line break before it: how to compare these two.
        other_data: the runs have different data. A corrected table may have the same queries in other rows: these are then
            matched by their image files.
    """
    if other_data and (renamed := by_files(a, b)) is not None:
        b, other_data = renamed, False
    a, b = of_one_sample(a, b)
    row, of_a, of_b = np.intersect1d(a.row, b.row, assume_unique=True, return_indices=True)
    alone = len(a.row) + len(b.row) - 2 * len(row)
    a, b = at_queries(a, of_a), at_queries(b, of_b)
    changed = int(((a.label != b.label) | (a.class_name != b.class_name) | (a.relevant != b.relevant)).sum())
    if alone or changed or other_data:
        start = "compare: A and B must have the same queries of the same data, but "
        parts = [f"{alone} queries are in one of them only"] if alone else []
        parts += [f"{changed} of {len(row)} queries have another class or number of relevant rows"] if changed else []
        if a.sample and b.sample and a.sample != b.sample:
            parts.append(
                f"A is a {words_of(a.sample)} and B a {words_of(b.sample)}: score both with the same --queries"
            )
        if not parts:
            parts = [
                "their data differs; if you know the queries to be the same, compare the per_query.parquet of both"
            ]
        raise LikewiseError(f"{start}{'; '.join(parts)}{advice}")
    return a, b


def of_one_sample(a: PerQuery, b: PerQuery) -> tuple[PerQuery, PerQuery]:
    """Return A and B on the queries of the sample, if one of them is a sample and the other has all queries."""
    if bool(a.sample) == bool(b.sample):
        return a, b
    few, every = (a, b) if a.sample else (b, a)
    every = dataclasses.replace(at_queries(every, np.flatnonzero(np.isin(every.row, few.row))), sample=few.sample)
    return (few, every) if a.sample else (every, few)


def words_of(sample: dict) -> str:
    """Return the facts about a sample of queries as text."""
    return f"random sample of {sample['queries']:,} of {sample['of']:,} queries"


def at_queries(side: PerQuery, place: Int[np.ndarray, "q"]) -> PerQuery:
    """Return the queries of a side at these places."""
    columns = {
        f.name: getattr(side, f.name) for f in dataclasses.fields(side) if f.name not in ("each", "relevance", "sample")
    }
    chosen = {name: value[place] for name, value in columns.items() if value is not None}
    return dataclasses.replace(side, each={name: value[place] for name, value in side.each.items()}, **chosen)


def by_files(a: PerQuery, b: PerQuery) -> PerQuery | None:
    """Return B with the rows and labels of A for the same image files; None if A and B have different files."""
    if a.path is None or b.path is None:
        return None
    # one table may have absolute paths, the other relative ones
    depth = min(len(PurePath(path[0]).parts) for path in (a.path, b.path))
    names_a, names_b = (["/".join(PurePath(p).parts[-depth:]) for p in path] for path in (a.path, b.path))
    place = {name: i for i, name in enumerate(names_a)}
    if len(place) < len(names_a) or set(names_b) != place.keys() or len(names_b) != len(names_a):
        return None
    own = np.array([place[name] for name in names_b])
    known = dict(zip(b.row.tolist(), a.row[own].tolist(), strict=True))
    nearest = np.array([known.get(row, -1) for row in b.nearest.ravel().tolist()]).reshape(b.nearest.shape)
    label = np.where(a.class_name[own] == b.class_name, a.label[own], -1)
    if b.rival is None:
        return dataclasses.replace(b, row=a.row[own], label=label, nearest=nearest)
    number = dict(zip(b.label.tolist(), label.tolist(), strict=True))
    rival = np.array([number.get(one, -1) for one in b.rival.tolist()])
    return dataclasses.replace(b, row=a.row[own], label=label, nearest=nearest, rival=rival)
