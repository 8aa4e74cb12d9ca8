"""Section "Comparison": two runs on the same queries, the difference between them, and the queries that changed most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.core.types import LikewiseError
from likewise.report.report_target import relevance_of
from likewise.report.section import (
    Facts,
    Packing,
    Pool,
    RankedQuery,
    ReportTarget,
    RunView,
    Section,
    Studies,
    places_of,
)
from likewise.report.sections.galleries import query_as_list, ranked_query
from likewise.score.compare import conclude, difference_intervals, same, same_relevance, shared_metrics
from likewise.score.same_queries import join


class ComparedRuns(NamedTuple):
    """Two runs on the same queries, ordered by the size of the change."""

    a: int
    b: int
    metric: str  # by which queries are compared
    conclusion: str  # one sentence
    queries: tuple[tuple[RankedQuery, RankedQuery], ...]


def compare_runs(
    a: int, b: int, targets: Sequence[ReportTarget], views: Sequence[RunView], pool: Pool, top: int
) -> ComparedRuns:
    """Compare run `b` with run `a` on the queries of a pool; keep the `top` queries that changed most."""
    first, second = targets[a].queries, targets[b].queries
    assert first is not None and second is not None
    one, other = join(*same_relevance(first, second, None), False)
    names = shared_metrics(one, other, None)
    metric = "MAP@R" if "MAP@R" in names else names[0]
    old, new = one.each[metric], other.each[metric]
    conclusion = same(one, other, None, None) or conclude(metric, difference_intervals(one, other, metric))
    place, relevance = places_of(one.row, pool.row), relevance_of(targets[a])

    def query(q: np.int64, value: np.ndarray, view: RunView) -> RankedQuery:
        assert view.near is not None and view.near_sim is not None
        shown = pool.label, view.near, view.near_sim, relevance, pool.label_sets
        return ranked_query(int(place[q]), float(value[q]), *shown)

    changed = most_changed(old, new, top)
    queries = tuple((query(q, old, views[a]), query(q, new, views[b])) for q in changed)
    return ComparedRuns(a, b, metric, with_names(conclusion, views[a].name, views[b].name), queries)


def with_names(sentence: str, a: str, b: str) -> str:
    """Return a sentence about "A" and "B" with the names of the runs in their place."""
    words = {"B - A": f"{b} - {a}", "B is": f"{b} is", "A and B": f"{a} and {b}"}
    for word, name in words.items():
        if word in sentence:
            return sentence.replace(word, name, 1)
    return sentence


def most_changed(old: Float[np.ndarray, "Q"], new: Float[np.ndarray, "Q"], top: int) -> Int[np.ndarray, "c"]:
    """Return the `top` queries with the largest changes, largest first: half gains and half losses if there are enough of both.

    Equal halves keep the selection from favouring one run.
    """
    gain = np.nan_to_num(new - old)
    order = np.argsort(-np.abs(gain), kind="stable")
    up, down = order[gain[order] > 1e-12], order[gain[order] < -1e-12]
    half = top // 2
    some = max(top - half, top - len(down)), max(half, top - len(up))
    both = np.concatenate([up[: some[0]], down[: some[1]]])
    return both[np.argsort(-np.abs(gain[both]), kind="stable")]


def of_page(studies: Studies) -> tuple[ComparedRuns, ...]:
    """Compare every further run of a pool with the first run of the pool. A failed comparison becomes a note."""
    found, views, config = [], studies.views, studies.config
    for number, pool in enumerate(studies.pools):
        here = [i for i, one in enumerate(studies.targets) if views[i].pool == number and one.queries is not None]
        for other in here[1:]:
            try:
                found.append(compare_runs(here[0], other, studies.targets, views, pool, config.top))
            except LikewiseError as error:
                studies.notes.append(f"{views[here[0]].name} and {views[other].name} are not compared ({error})")
    return tuple(found)


def pack(found: tuple[ComparedRuns, ...], packing: Packing) -> list[dict]:
    return [
        one._asdict() | {"queries": [[query_as_list(a), query_as_list(b)] for a, b in one.queries]} for one in found
    ]


def has_changes(facts: Facts) -> bool:
    """Return whether a query has different values in two runs."""
    return any(one.queries for one in facts.found.get("compared", ()))


SECTION = Section(
    "compared",
    "Comparison",
    "Comparison of two runs",
    of_page=of_page,
    pack=pack,
    shown_if=has_changes,
)
