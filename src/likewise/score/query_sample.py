"""A random sample of the queries of an evaluation, stratified by class: its drawing, and what its means say about all queries.

Every query of the sample is ranked exactly against the whole gallery. Cost: N log N to draw n of N queries; ranking them then
costs n products with the gallery in place of N.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from likewise.core.types import Embedded, QuerySample
from likewise.score.intervals import MIN_EXTREME_UNITS, MIN_INTERVAL_UNITS
from likewise.score.retrieve import Scoring, count_relevant_rows, relevance_of

SAMPLE_SEED = 0
"""Seed of the drawing: the same labels give the same queries, so that other embeddings are scored on the same ones."""

USUAL_QUERY_COUNT = 20_000
"""Number of queries that messages suggest: the standard error of a share is then at most 0.35 points."""


def draw_queries(label: Int[np.ndarray, "N"], count: int, seed: int = SAMPLE_SEED) -> Int[np.ndarray, "n"]:
    """Return `count` random places among the labels, in the order of drawing: classes in random order, each class together.

    Every place has the same chance f = count / N. Of a class of N_c places, f N_c are drawn, rounded down or up.

    Paper: Madow and Madow, On the theory of systematic sampling, 1944.
    Formula: places floor((i + u) N / count), i = 0 .. count - 1, of the list of classes in random order, with the samples of a
        class in random order; one u for all, uniform from 0 to 1
    """
    rng = np.random.default_rng(seed)
    names, own = np.unique(label, return_inverse=True)
    order = np.lexsort((rng.permutation(len(label)), rng.permutation(len(names))[own]))
    at = np.floor((np.arange(count) + rng.random()) * (len(label) / count)).astype(np.int64)
    return order[at.clip(max=len(label) - 1)]


def with_sample(e: Embedded, scoring: Scoring) -> Scoring:
    """Return how to score a sample of `scoring.sample` queries; unchanged if there are no more queries than that.

    Where rows of the same class are relevant, the sample is drawn from the queries with a relevant gallery row: the others have
    no value, and their number is known. Otherwise it is drawn from all queries.
    """
    if scoring.sample is None:
        return scoring
    items, rows = scoring.items, e.row.numpy()
    place = np.flatnonzero(scoring.sides(e)[0])
    queries = len(place)
    relevance = scoring.relevance or relevance_of(items, rows)
    if items.label_sets is None and (relevance is None or relevance.facts["relevant"] == "same class"):
        place = place[count_relevant_rows(items, scoring.protocol, rows).numpy() > 0]
    if scoring.sample >= len(place):
        return scoring
    label = e.y.numpy()[place]
    drawn = draw_queries(label, scoring.sample)
    chosen = np.zeros(len(rows), bool)
    chosen[place[drawn]] = True
    _, own, size = np.unique(label, return_inverse=True, return_counts=True)
    ascending = np.sort(drawn)
    chance = np.minimum(1.0, size[own[ascending]] * (scoring.sample / len(place)))
    order = np.searchsorted(ascending, drawn)
    return replace(scoring, drawn=QuerySample(chosen, order, chance, len(place), queries - len(place), SAMPLE_SEED))


def interval_of_all(
    value: Float[np.ndarray, "n"], sample: QuerySample, level: float = 0.95
) -> tuple[float, float] | None:
    """Return the interval of the mean over all queries of these rows, from the values of the sample; None if there is none.

    It covers the drawing of the queries alone, not other classes, and shrinks to nothing when all queries are drawn.

    Paper: Wolter, Introduction to Variance Estimation, 1985, section 7.2: successive differences of a systematic sample.
    Formula: V = (1 - n / N) n / (2 (n - 1)) sum_i (e_i - e_{i - 1})^2 / M^2, in the order of drawing, with e_i = value_i - m, 0
        for one of the n - M queries without a value; m +- t_f sqrt(V), in log-odds for shares as in `ratio_intervals`;
        f = 2 (n - 1) / 3
    Differs: no finite population correction can make it negative, and at the border of two classes the difference between them
        counts in full, so that it is rather too long for few queries of each class.

    Args:
        value: one value per query of the sample, NaN without one.
    """
    from scipy.special import expit, logit, stdtrit  # slow to import

    known = ~np.isnan(value)
    n, scored = len(value), int(known.sum())
    if scored < MIN_INTERVAL_UNITS:
        return None
    mean = float(value[known].mean())
    rest = np.where(known, value - mean, 0.0)[sample.order]
    variance = (1 - n / sample.of) * n / (2 * (n - 1)) * float((np.diff(rest) ** 2).sum()) / scored**2
    share = bool((value[known] >= 0).all() and (value[known] <= 1).all())
    if not variance > 0 or (share and scored * min(mean, 1 - mean) < MIN_EXTREME_UNITS):
        return None
    reach = float(stdtrit(2 * (n - 1) / 3, (1 + level) / 2)) * variance**0.5
    if not share:
        return mean - reach, mean + reach
    middle, reach = logit(mean), reach / (mean * (1 - mean))
    return float(expit(middle - reach)), float(expit(middle + reach))


def mean_over_sampled_classes(value: Float[np.ndarray, "n"], label: Int[np.ndarray, "n"], sample: QuerySample) -> float:
    """Return the estimated mean of the classes' means; NaN if no query has a value.

    Paper: Hajek, in Foundations of Statistical Inference, 1971: a ratio of sums weighted by the inverse of the chance.
    Formula: sum_c m_c / p_c  /  sum_c 1 / p_c, over the drawn classes; p_c = min(1, N_c n / N)
    """
    scored = ~np.isnan(value)
    _, first, own, count = np.unique(label[scored], return_index=True, return_inverse=True, return_counts=True)
    if not len(count):
        return float("nan")
    return float(np.average(np.bincount(own, value[scored]) / count, weights=1 / sample.class_chance[scored][first]))
