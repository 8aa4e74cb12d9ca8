"""contest: several methods, each with several seeds, on the same queries -> every pair tested, and all of them ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from likewise.errors import LikewiseError, nearest_name
from likewise.evaluation.compare import join
from likewise.numerics.bootstrap import paired
from likewise.numerics.significance import (
    Contest,
    Versus,
    blocked_t,
    critical_difference,
    friedman,
    holm,
    mean_ranks,
    sign_flip,
)
from likewise.runs.per_query import PerQuery

LEVEL = 0.05
"""Below this, a corrected p speaks."""

FINEST = 100
"""Draws of signs for every pair, at least: the smallest corrected p that they can give is then 1 in 100."""

TOGETHER = 128
"""Pairs whose intervals are drawn at once: few enough to bound the memory."""

DIGITS = 12
"""Sums and means of a class that are the same so far are equal: the rest is rounding."""

Seeds = Sequence[PerQuery | None]
"""What a method's trainings answered, one a seed; None where a seed is missing, so that a place is a seed."""

Answers = dict[str, dict[int, Float[np.ndarray, "Q"]]]
"""Method -> seed -> one number a query."""


def contest(columns: Mapping[str, Mapping[str, Seeds]], metric: str, resamples: int = 10_000, seed: int = 0) -> Contest:
    """Test every pair of methods in every column, and rank the methods that all columns have.

    Classes are what results on unseen classes speak of, seeds what another training would give: "better" needs both. Who is
    compared is so by the seeds that all of them have, so that a lucky or a lost training is nobody's advantage; by all of
    each where there is none. Over classes, the differences of whole classes change their sign (summed over queries, so that
    what is tested is the difference that is shown; seeds averaged). Over seeds, a t-test with the seeds as blocks. Ranks are
    of class means, averaged over seeds and columns.

    Args:
        columns: name of a column, such as a noise setting -> method -> its seeds. All answer the same queries.
        metric: what is compared; high is good.
        draws: of signs, at least; more where there are many pairs.
        seed: of the draws.
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
        values = np.round(np.mean(by_class, 0) / np.bincount(unit)[:, None], DIGITS)
        ranks = mean_ranks(values).mean
        rank = {everywhere[place]: float(ranks[place]) for place in np.argsort(ranks, kind="stable")}
    if len(everywhere) > 1:
        apart, critical = friedman(values), critical_difference(len(everywhere), len(values))
    queries = int(scored.sum())
    return Contest(metric, queries, len(scored) - queries, len(np.bincount(unit)), tuple(pairs), rank, apart, critical)


def gather(columns: Mapping[str, Mapping[str, Seeds]], metric: str) -> tuple[Int[np.ndarray, "Q"], dict[str, Answers]]:
    """The class of every query, and what each column's methods make of it, all in one order. Who has no seed is left out."""
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
        raise LikewiseError("contest: there must be one evaluated training or more, got none; train something first")
    return first.label, {column: own for column, own in answers.items() if own}


def try_pairs(column: str, own: Answers, unit: Int[np.ndarray, "Q"], resamples: int, seed: int) -> list[Versus]:
    """Every pair of one column's methods, in their order."""
    pairs, ends, gains = list(combinations(own, 2)), [], []
    if not pairs:
        return []
    for first in range(0, len(pairs), TOGETHER):
        sides = [shared(own, pair) for pair in pairs[first : first + TOGETHER]]
        a, b = np.stack(sides).transpose(1, 2, 0)
        ends.append(np.stack(paired(a, b, unit, seed=seed)[:3]))
        totals = [np.round(sum_classes(side.T, unit), DIGITS) for side in (a, b)]
        gains.append(totals[1] - totals[0])
    over_classes, gain = np.concatenate(ends, 1), np.concatenate(gains, 1)
    p_classes = holm(np.asarray(sign_flip(gain, max(resamples, FINEST * len(pairs)), seed)))
    both = [common(own, pair) for pair in pairs]
    p_seeds = holm(blocked_t(by_seed(own))[np.triu_indices(len(own), 1)])
    return [
        Versus(
            column, *pair, *over_classes[:, k].tolist(), float(p_classes[k]), float(p_seeds[k]),  # pyright: ignore[reportCallIssue]
            len(both[k]), verdict(float(over_classes[0, k]), float(p_classes[k]), float(p_seeds[k])),  # pyright: ignore[reportCallIssue]
        )
        for k, pair in enumerate(pairs)
    ]  # fmt: skip


def by_seed(own: Answers) -> Float[np.ndarray, "S M"]:
    """Every training's mean, NaN where there is none."""
    seeds = sorted({s for one in own.values() for s in one})
    return np.array([[one[s].mean() if s in one else np.nan for one in own.values()] for s in seeds])


def verdict(difference: float, p_classes: float, p_seeds: float) -> str:
    """What may be said of b beside a. One training of each (p over seeds NaN) is never enough for "better"."""
    classes, seeds = p_classes < LEVEL, p_seeds < LEVEL
    if classes and seeds:
        return "better" if difference > 0 else "worse"
    return "classes only" if classes else "seeds only" if seeds else "no difference shown"


def sum_classes(values: Float[np.ndarray, "M Q"], unit: Int[np.ndarray, "Q"]) -> Float[np.ndarray, "C M"]:
    """Sums over the queries of every class, classes by methods."""
    return np.stack([np.bincount(unit, value) for value in values], 1)


def common(own: Answers, names: Sequence[str]) -> list[int]:
    """The seeds that all of these methods have."""
    return [seed for seed in own[names[0]] if all(seed in own[name] for name in names)]


def shared(own: Answers, names: Sequence[str]) -> Float[np.ndarray, "M Q"]:
    """What each of these methods answers, averaged over the seeds that all of them have; over all its own where there is none."""
    seeds = common(own, names)
    return np.stack([np.mean([own[name][s] for s in seeds or own[name]], 0) for name in names])
