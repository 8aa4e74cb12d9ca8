"""Scores under the true labels of the test rows, where some given labels are wrong: estimates with 95 % intervals.

The estimates are for the same rows and the same ranking; an interval covers uncertainty about the labels, not other classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import stdtrit
from torch import Tensor

from likewise.labels.label_imputation import impute_scores
from likewise.labels.noise_inversion import inverse_transition, invert_scores, invertible
from likewise.labels.prediction_powered import prediction_powered_mean
from likewise.score.fixed_ranking import FixedRanking
from likewise.score.metrics import is_set_metric, metric, reach

MAX_STANDARD_ERROR = 0.15
"""Largest standard error of an estimate that is shown: a wider interval has no use."""

MIN_CLASS_SAMPLES = 15
"""Smallest median class size for which labels are imputed; noise between similar classes is not modelled in smaller ones."""

MIN_SMALL_CLASS_SHARE = 0.025
"""Smallest size of small classes, as a share of the largest, for which labels are imputed."""

MIN_REVIEWED_QUERIES = 30
"""Smallest number of reviewed queries that an interval is computed from."""

ADDED_SQUARES_COUNT = 2.0
"""Squares that are added to those of the reviewed queries: if no reviewed value differs from the prediction, another may."""

INTERVAL_ERRORS_COUNT = 1.96
"""Standard errors on each side of a 95 % interval."""

SET_METRIC_REASON = "it is no mean over queries"
ALL_HITS_REASON = "it needs the ranks of all relevant rows, at any depth"
FEATURES_REASON = "the embeddings explain the labels no better than the class frequencies do"
UNNOTICED_REASON = "in these data, labels that are exchanged between similar classes would go unnoticed"
TOO_UNCERTAIN_REASON = f"the standard error of the corrected score is above {MAX_STANDARD_ERROR:.0%}"
NOT_INVERTIBLE_REASON = "only R@k, P@k, RP and MAP@R are corrected for known noise"
EXCLUDED_ROWS_REASON = "with groups or excluded pairs, the number of relevant rows under known noise is unknown"
COUNT_REASON = "it needs the number of relevant rows, which reviewed neighbours do not give"


class Estimate(NamedTuple):
    """A corrected score with its 95 % interval."""

    value: float
    low: float
    high: float


Corrected = tuple[dict[str, Estimate], dict[str, str]]
"""Estimates by metric, and the reason for every metric that cannot be corrected."""


def as_estimate(value: float, error: float, quantile: float = INTERVAL_ERRORS_COUNT) -> Estimate:
    """Return a score and its interval, both within 0 and 1."""
    low, high = (min(1.0, max(0.0, value + side * quantile * error)) for side in (-1, 1))
    return Estimate(min(1.0, max(0.0, value)), low, high)


def collect(values: dict[str, tuple[float, float]], unknown: dict[str, str]) -> Corrected:
    """Return estimates of scores and standard errors; metrics with a large or undefined error are unknown."""
    sure = {name for name, (value, error) in values.items() if math.isfinite(value) and error <= MAX_STANDARD_ERROR}
    unknown = unknown | {name: TOO_UNCERTAIN_REASON for name in values if name not in sure}
    return {name: as_estimate(*values[name]) for name in values if name in sure}, unknown


def split_metrics(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the metrics that a ranking of limited depth has, and the reasons against the others."""
    unknown = {name: SET_METRIC_REASON for name in names if is_set_metric(name)}
    unknown |= {name: ALL_HITS_REASON for name in names if name not in unknown and reach([name]).all_hits}
    return [name for name in names if name not in unknown], unknown


def by_audit(
    x: Float[Tensor, "N F"],
    y: Int[Tensor, "N"],
    classes: int,
    ranking: FixedRanking,
    names: Sequence[str],
    seed: int = 0,
) -> Corrected:
    """Return scores from labels that are drawn from their posterior, as the audit computes it from features."""
    names, unknown = split_metrics(names)
    if reason := why_not_imputed(torch.bincount(y, minlength=classes)):
        return {}, unknown | dict.fromkeys(names, reason)
    found = impute_scores(x, y, classes, lambda labels: ranking.means(labels, names), group=ranking.group, seed=seed)
    if found is None:
        return {}, unknown | dict.fromkeys(names, FEATURES_REASON)
    unknown |= {name: UNNOTICED_REASON for name, error in zip(names, found.error) if np.isinf(error)}
    values = zip(names, found.value.tolist(), found.error.tolist())
    return collect({name: (value, error) for name, value, error in values if name not in unknown}, unknown)


def why_not_imputed(size: Int[Tensor, "C"]) -> str:
    """Return why wrong labels of classes of these sizes cannot be distinguished from classes that overlap; "" if they can."""
    if size.median() < MIN_CLASS_SAMPLES:
        return (
            f"half of the classes have fewer than {MIN_CLASS_SAMPLES} samples: wrong labels look like unusual samples"
        )
    if size.double().quantile(0.1) < MIN_SMALL_CLASS_SHARE * size.max():
        return (
            f"a tenth of the classes are smaller than {MIN_SMALL_CLASS_SHARE:.1%} of the largest, so few wrong labels of large "
            "classes may fill small ones unnoticed"
        )
    return ""


def by_noise(
    transition: Float[np.ndarray, "C C"], y: Int[Tensor, "N"], ranking: FixedRanking, names: Sequence[str]
) -> Corrected:
    """Return scores under known noise: P(given | true) of all classes."""
    inverse = inverse_transition(transition)
    unknown = {name: NOT_INVERTIBLE_REASON for name in names if not invertible(name)}
    if ranking.has_exclusions:
        unknown |= {name: EXCLUDED_ROWS_REASON for name in names if name in ("RP", "MAP@R")}
    names = [name for name in names if name not in unknown]
    found = invert_scores(inverse, y, ranking.query, ranking.row, ranking.in_gallery, names)
    return collect({name: (found[name].value, found[name].error) for name in names}, unknown)


def by_review(
    label: Int[Tensor, "N"], drawn: Int[Tensor, "n"], y: Int[Tensor, "N"], ranking: FixedRanking, names: Sequence[str]
) -> Corrected:
    """Return scores from reviewed labels of random queries and their first neighbours.

    A metric with k uses the drawn queries before the first one that lacks a label, of its own or of its first k neighbours.

    Args:
        label: true labels, -1 where they are not known.
        drawn: numbers of queries in the random order in which they were drawn.
    """
    estimates, (names, unknown) = {}, split_metrics(names)
    given, true = ranking.retrieval(y), ranking.retrieval(torch.where(label >= 0, label, y))
    for name in names:
        if not re.fullmatch(r"(R|P|MRR)@[0-9]+", name):
            unknown[name] = COUNT_REASON
            continue
        near = ranking.row[drawn, : reach([name]).k]
        known = (label[ranking.query[drawn]] >= 0) & ((label[near.clamp_min(0)] >= 0) | (near < 0)).all(1)
        used = drawn[known.cumprod(0).bool()]
        if len(used) < MIN_REVIEWED_QUERIES:
            unknown[name] = (
                f"an interval needs {MIN_REVIEWED_QUERIES} reviewed queries with their first {near.shape[1]} neighbours, "
                f"got {len(used)}"
            )
        else:
            values = [metric(name)(one).nan_to_num(0).numpy() for one in (true, given)]
            estimates[name] = _powered(values[0], values[1], used)
    return estimates, unknown


def _powered(true: np.ndarray, plain: np.ndarray, drawn: Tensor) -> Estimate:
    """Return the mean of the true values of all queries, from those of the drawn ones and the plain values of all."""
    n, others = len(drawn), np.delete(plain, drawn.numpy())
    found = prediction_powered_mean(true[drawn.numpy()], plain[drawn.numpy()], others)
    left = 1 - n / len(plain)  # share of the queries that was not drawn
    squares = (n - 1) * n * found.variance / left if left > 0 else 0.0
    variance = left * (squares + ADDED_SQUARES_COUNT) / (n + 1) / n
    return as_estimate(found.mean, math.sqrt(variance), float(stdtrit(n - 1, 0.975)))
