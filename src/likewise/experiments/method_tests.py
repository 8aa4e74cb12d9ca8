"""contest: significance tests between all pairs of methods on the same queries, over classes and seeds, and mean ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from likewise.errors import LikewiseError, nearest_name
from likewise.evaluation.compare import join
from likewise.numerics.intervals import paired_interval
from likewise.numerics.significance import (
    MethodComparison,
    PairTest,
    blocked_t,
    critical_difference,
    friedman,
    holm,
    mean_ranks,
    sign_flip,
)
from likewise.runs.per_query import PerQuery

SIGNIFICANCE_LEVEL = 0.05
"""A corrected p below this is significant."""

MIN_DRAWS_FACTOR = 100
"""Minimum number of sign draws for each pair: the smallest possible corrected p is then 1 in 100."""

PAIRS_CHUNK = 128
"""Pairs of methods whose intervals are computed at once, which bounds the memory."""

ROUNDING_DIGITS = 12
"""Sums and means are rounded to this many digits, so that rounding errors do not break ties."""

Seeds = Sequence[PerQuery | None]
"""The per-query results of a method, one for each seed; None for a missing seed."""

Answers = dict[str, dict[int, Float[np.ndarray, "Q"]]]
"""Method -> seed -> metric of every query."""


def contest(
    columns: Mapping[str, Mapping[str, Seeds]], metric: str, resamples: int = 10_000, seed: int = 0
) -> MethodComparison:
    """Test every pair of methods in every column, and rank the methods that all columns have.

    A test over classes covers the choice of classes, a test over seeds the randomness of training: "better" needs both. Methods
    are compared on their common seeds, so that a missing training favours no method; on all seeds if there is no common one.
    Over classes: a sign-flip test of the differences of whole classes (summed over queries, averaged over seeds). Over seeds: a
    t-test with the seeds as blocks. Ranks are those of class means, averaged over seeds and columns.

    Args:
        columns: name of a column, such as a noise setting -> method -> its seeds. All must have the same queries.
        metric: the metric to compare; larger is better.
        resamples: minimum number of sign draws; more are used for many pairs.
        seed: seed of the draws.
    """
    label, answers = gather(columns, metric)
    table = [value for own in answers.values() for seeds in own.values() for value in seeds.values()]
    scored = np.asarray(~np.isnan(table).any(0))
    if not scored.any():
        raise LikewiseError(
            f"contest: {metric} must be known for one query or more, got NaN for all {len(scored)} of them"
        )
    answers = {
        column: {method: {s: value[scored] for s, value in seeds.items()} for method, seeds in own.items()}
        for column, own in answers.items()
    }
    _, unit = np.unique(label[scored], return_inverse=True)
    pairs = [pair for column, own in answers.items() for pair in try_pairs(column, own, unit, resamples, seed)]
    everywhere = [method for method in next(iter(answers.values())) if all(method in own for own in answers.values())]
    rank, apart, critical = {}, float("nan"), float("nan")
    if everywhere:
        by_class = [sum_classes(shared(own, everywhere), unit) for own in answers.values()]
        values = np.round(np.mean(by_class, 0) / np.bincount(unit)[:, None], ROUNDING_DIGITS)
        ranks = mean_ranks(values).mean
        rank = {everywhere[place]: float(ranks[place]) for place in np.argsort(ranks, kind="stable")}
    if len(everywhere) > 1:
        apart, critical = friedman(values), critical_difference(len(everywhere), len(values))
    queries = int(scored.sum())
    return MethodComparison(
        metric, queries, len(scored) - queries, len(np.bincount(unit)), tuple(pairs), rank, apart, critical
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


def try_pairs(column: str, own: Answers, unit: Int[np.ndarray, "Q"], resamples: int, seed: int) -> list[PairTest]:
    """Return the tests of all pairs of methods of one column."""
    pairs, ends, gains = list(combinations(own, 2)), [], []
    if not pairs:
        return []
    for first in range(0, len(pairs), PAIRS_CHUNK):
        sides = [shared(own, pair) for pair in pairs[first : first + PAIRS_CHUNK]]
        a, b = np.stack(sides).transpose(1, 2, 0)
        ends.append(np.array([paired_interval(*sides, unit)[:3] for sides in zip(a.T, b.T)]).T)
        totals = [np.round(sum_classes(side.T, unit), ROUNDING_DIGITS) for side in (a, b)]
        gains.append(totals[1] - totals[0])
    over_classes, gain = np.concatenate(ends, 1), np.concatenate(gains, 1)
    p_classes = holm(np.asarray(sign_flip(gain, max(resamples, MIN_DRAWS_FACTOR * len(pairs)), seed)))
    both = [common(own, pair) for pair in pairs]
    p_seeds = holm(blocked_t(by_seed(own))[np.triu_indices(len(own), 1)])
    return [
        PairTest(
            column, *pair, *over_classes[:, k].tolist(), float(p_classes[k]), float(p_seeds[k]),  # pyright: ignore[reportCallIssue]
            len(both[k]), conclusion(float(over_classes[0, k]), float(p_classes[k]), float(p_seeds[k])),  # pyright: ignore[reportCallIssue]
        )
        for k, pair in enumerate(pairs)
    ]  # fmt: skip


def by_seed(own: Answers) -> Float[np.ndarray, "S M"]:
    """Return the mean of every training, seeds by methods; NaN for a missing training."""
    seeds = sorted({s for one in own.values() for s in one})
    return np.array([[one[s].mean() if s in one else np.nan for one in own.values()] for s in seeds])


def conclusion(difference: float, p_classes: float, p_seeds: float) -> str:
    """Return the conclusion about b against a. With one training each (p over seeds is NaN), never "better" or "worse"."""
    classes, seeds = p_classes < SIGNIFICANCE_LEVEL, p_seeds < SIGNIFICANCE_LEVEL
    if classes and seeds:
        return "better" if difference > 0 else "worse"
    return "classes only" if classes else "seeds only" if seeds else "no difference shown"


def sum_classes(values: Float[np.ndarray, "M Q"], unit: Int[np.ndarray, "Q"]) -> Float[np.ndarray, "C M"]:
    """Return the sums over the queries of every class, classes by methods."""
    return np.stack([np.bincount(unit, value) for value in values], 1)


def common(own: Answers, names: Sequence[str]) -> list[int]:
    """Return the seeds that all of these methods have."""
    return [seed for seed in own[names[0]] if all(seed in own[name] for name in names)]


def shared(own: Answers, names: Sequence[str]) -> Float[np.ndarray, "M Q"]:
    """Return the metric of each method per query, averaged over the common seeds; over its own seeds if there is none."""
    seeds = common(own, names)
    return np.stack([np.mean([own[name][s] for s in seeds or own[name]], 0) for name in names])
