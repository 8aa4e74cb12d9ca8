"""contest: significance tests between all pairs of methods on the same queries, over classes and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError, nearest_name
from likewise.runs.scores import PerQuery
from likewise.score.compare import same_relevance
from likewise.score.same_queries import join
from likewise.score.significance import MethodComparison, PairTest, compare_pairs, holm

SIGNIFICANCE_LEVEL = 0.05
"""A corrected p below this is significant."""

Seeds = Sequence[PerQuery | None]
"""The per-query results of a method, one for each seed; None for a missing seed."""

Answers = dict[str, dict[int, Float[np.ndarray, "Q"]]]
"""Method -> seed -> metric of every query."""

ClassTotals = dict[str, dict[int, Float[np.ndarray, "C"]]]
"""Method -> seed -> metric, summed over the queries of every class."""


def contest(columns: Mapping[str, Mapping[str, Seeds]], metric: str) -> MethodComparison:
    """Test every pair of methods in every column, and the means over columns of the methods that all columns have.

    The tests cover other classes and other trainings (`compare_pairs`). Methods are compared on their common seeds, so that a
    missing training favours no method; without a common seed on all seeds, and not tested. Means over columns use the seeds that
    a method has in all columns.

    Args:
        columns: name of a column, such as a noise setting -> method -> its seeds. All must have the same queries.
        metric: the metric to compare; larger is better.
    """
    label, answers = gather(columns, metric)
    table = [value for own in answers.values() for seeds in own.values() for value in seeds.values()]
    scored = np.asarray(~np.isnan(table).any(0))
    if not scored.any():
        raise LikewiseError(
            f"contest: {metric} must be known for one query or more, got NaN for all {len(scored)} of them"
        )
    _, unit = np.unique(label[scored], return_inverse=True)
    size = np.bincount(unit)
    totals = {
        column: {
            method: {s: np.bincount(unit, value[scored]) for s, value in seeds.items()} for method, seeds in own.items()
        }
        for column, own in answers.items()
    }
    pairs = [pair for column, own in totals.items() for pair in pair_tests(column, own, size)]
    overall = average_columns(list(totals.values()))
    shared = set.intersection(*map(set, overall.values())) if overall else set()
    means = {m: mean_of({s: seeds[s] for s in shared or seeds}, size) for m, seeds in overall.items()}
    means = dict(sorted(means.items(), key=lambda one: -one[1]))
    queries = int(scored.sum())
    return MethodComparison(
        metric, queries, len(scored) - queries, len(size), tuple(pairs), means, tuple(pair_tests("", overall, size))
    )


def gather(columns: Mapping[str, Mapping[str, Seeds]], metric: str) -> tuple[Int[np.ndarray, "Q"], dict[str, Answers]]:
    """Return the class of every query, and the metric of every column, method and seed, in one order of the queries.

    Columns without any seed are not included.
    """
    first, answers = None, {}
    for column, methods in columns.items():
        own = answers.setdefault(column, {})
        for method, seeds in methods.items():
            for place, one in enumerate(seeds):
                if one is None:
                    continue
                if metric not in one.each:
                    raise LikewiseError(
                        f"contest: '{metric}' must have been measured for {method}, got {', '.join(one.each)}"
                        f"{nearest_name(metric, list(one.each))} Run `likewise evaluate RUN --metrics {metric} ...`"
                    )
                try:
                    same_relevance(first or one, one, (metric,))
                    first, one = join(first or one, one, False)
                except LikewiseError as error:
                    where = f"{method}{column and f' at {column}'}"
                    raise LikewiseError(
                        f"contest: A is the first method, B is {where}, seed {place}: {error}"
                    ) from None
                own.setdefault(method, {})[place] = one.each[metric].astype(np.float64)
    if first is None:
        raise LikewiseError("contest: there must be one evaluated training or more, got none; train first")
    return first.label, {column: own for column, own in answers.items() if own}


def average_columns(columns: Sequence[ClassTotals]) -> ClassTotals:
    """Return the means over columns, for the methods that all columns have with a common seed, on those seeds."""
    found: ClassTotals = {}
    for method, seeds in columns[0].items():
        everywhere = [s for s in seeds if all(s in own.get(method, {}) for own in columns)]
        if everywhere:
            found[method] = {s: np.mean([own[method][s] for own in columns], 0) for s in everywhere}
    return found


def pair_tests(column: str, own: ClassTotals, size: Int[np.ndarray, "C"]) -> list[PairTest]:
    """Return the tests of all pairs of methods of one column."""
    if len(own) < 2:
        return []
    seeds = sorted({s for one in own.values() for s in one})
    none = np.full(len(size), np.nan)
    total = np.array([[one.get(s, none) for one in own.values()] for s in seeds]).transpose(2, 0, 1)
    found = compare_pairs(total, size)
    p, pairs = holm(found.p), []
    for k, (a, b) in enumerate(combinations(own, 2)):
        mean = found.mean[k] if found.seeds[k] else mean_of(own[b], size) - mean_of(own[a], size)
        numbers = (float(mean), float(found.low[k]), float(found.high[k]), float(p[k]))
        pairs.append(PairTest(column, a, b, *numbers, int(found.seeds[k]), conclusion(numbers[0], numbers[3])))
    return pairs


def mean_of(seeds: dict[int, Float[np.ndarray, "C"]], size: Int[np.ndarray, "C"]) -> float:
    """Return the mean over queries and seeds."""
    return float(np.mean(list(seeds.values())) / size.mean())


def conclusion(difference: float, p: float) -> str:
    """Return the conclusion about b against a."""
    if np.isnan(p):
        return "not tested"
    return "no difference shown" if p >= SIGNIFICANCE_LEVEL else "better" if difference > 0 else "worse"
