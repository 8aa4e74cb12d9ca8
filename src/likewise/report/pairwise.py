"""Runs that were asked the same queries: who is better, which queries changed most, and whether they fail at the same classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from likewise.config.audit import Audit
from likewise.evaluation.compare import conclude, join, same, shared_metrics
from likewise.evaluation.overlap_runs import must_match as must_have_same_classes
from likewise.evaluation.overlap_runs import named_by, read_wrongs
from likewise.numerics.bootstrap import paired
from likewise.render.error_overlap import Overlapped
from likewise.report.opened import Opened
from likewise.report.queries import ask, changed_most
from likewise.report.records import Asked, Compared, Pool, Viewed
from likewise.types import LikewiseError

NAMED = 10
"""Classes that a run names as its most wrong, as in `likewise audit --overlap`."""


def set_beside(
    a: int, b: int, opened: Sequence[Opened], viewed: Sequence[Viewed], pool: Pool, top: int, seed: int
) -> Compared:
    """What run b makes of the queries of run a: a verdict, and the queries that changed most."""
    first, second = opened[a].queries, opened[b].queries
    assert first is not None and second is not None
    one, other = join(first, second, False)
    names = shared_metrics(one, other, None)
    metric = "MAP@R" if "MAP@R" in names else names[0]
    old, new = one.each[metric], other.each[metric]
    by_query = paired(old[:, None], new[:, None], seed=seed)
    by_class = paired(old[:, None], new[:, None], one.label, seed=seed)
    verdict = same(one, other, None, None) or conclude(metric, by_query, by_class, 0)
    place = places_of(one.row, pool.row)

    def asked(q: np.int64, value: np.ndarray, seen: Viewed) -> Asked:
        assert seen.near is not None and seen.near_sim is not None
        return ask(int(place[q]), float(value[q]), pool.label, seen.near, seen.near_sim)

    changed = changed_most(old, new, top)
    queries = tuple((asked(q, old, viewed[a]), asked(q, new, viewed[b])) for q in changed)
    return Compared(a, b, metric, with_names(verdict, viewed[a].name, viewed[b].name), queries)


def with_names(verdict: str, a: str, b: str) -> str:
    """A sentence about A and B, about these runs."""
    words = {"B - A": f"{b} - {a}", "B is": f"{b} is", "A and B": f"{a} and {b}"}
    for word, name in words.items():
        if word in verdict:
            return verdict.replace(word, name, 1)
    return verdict


def places_of(rows: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
    """Where rows of the data stand among all of a pool; -1: nowhere."""
    order = np.argsort(all_rows, kind="stable")
    at = np.searchsorted(all_rows, rows, sorter=order).clip(max=len(all_rows) - 1)
    return np.where(all_rows[order[at]] == rows, order[at], -1)


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
