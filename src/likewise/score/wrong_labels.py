"""Wrong labels of the test rows, which make scores too low: their estimated number, and corrected scores from a review.

A corrected score is for the same rows and the same ranking; its 95 % interval covers uncertainty about the labels, not other
classes. Reviewers write the true labels of random queries and their first neighbours into a form, a .csv file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.files import write_csv
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval
from likewise.data.tabular import read_csv
from likewise.labels.label_evidence import discriminate
from likewise.labels.label_noise import Noise
from likewise.score.metrics import is_set_metric, metric, reach
from likewise.score.metrics.ranking import starts
from likewise.score.retrieve import Scoring

MIN_CHECKED_ROWS = 200
"""Smallest number of rows whose labels are checked: of fewer rows, a few unusual samples look like a share of wrong labels."""

MAX_CHECKED_ROWS = 2000
"""Largest number of rows that the estimate is made from, about two seconds of one CPU core; of more rows, some are drawn."""

MIN_CLASS_ROWS = 8
"""Smallest class whose labels are checked: few samples of a class among many others look like samples of these."""

GOOD_EXPLAINED_SHARE = 0.7
"""Share of the information in the labels that embeddings explain from which they separate the classes well."""

MIN_EXPLAINED_SHARE = 0.25
"""Smallest such share with which anything is reported: what a network does not separate looks like wrong labels.

With right labels, an untrained network on drawn characters (0.12) gave an estimate of 13 % wrong labels. On features of five data
sets (Pets, Caltech-101, GTSRB, Omniglot, CUB200), made worse in five steps by noise and a random projection, right labels gave a
false report at 0.02, 0.03 and 0.23, and in none of the eleven cases from 0.29 on."""

MIN_WRONG_SHARE, MIN_WRONG_SHARE_IF_POOR = 0.03, 0.05
"""Smallest share of wrong labels that is reported, for embeddings that separate the classes well and for other ones.

On 36 sets with right labels (34 of normal clusters, digits and breast_cancer of scikit-learn), the estimates were at most 0.003
and 0.029, and on embeddings of drawn characters 0.033; none was reported. With 8 % of the labels exchanged at random, 34 of the
36 were reported; the number was 0.70 to 1.43 times the true one (median 1.00). These limits and
`MIN_CLASS_ROWS` were chosen on the same sets; six more sets, of small classes, were not checked by this rule."""

MIN_WRONG_LABELS = 5
"""Smallest number of wrong labels that is reported."""

FORM_QUERIES_COUNT = 300
"""Number of queries in a form. Reviewers need not finish it: queries are in random order."""

FORM_COLUMNS = ("query", "row", "path", "given", "label")

MIN_REVIEWED_QUERIES = 30
"""Smallest number of reviewed queries that an interval is computed from."""

ADDED_SQUARES_COUNT = 2.0
"""Squares that are added to those of the reviewed queries: if no reviewed value differs from the prediction, another may."""

SET_METRIC_REASON = "it is no mean over queries"
ALL_HITS_REASON = "it needs the ranks of all relevant rows, at any depth"
COUNT_REASON = "it needs the number of relevant rows, which reviewed neighbours do not give"


class Estimate(NamedTuple):
    """A corrected score with its 95 % interval."""

    value: float
    low: float
    high: float


class Powered(NamedTuple):
    """Estimated mean of the true values, its variance, and the weight of the predictions (0: they are not used)."""

    mean: float
    variance: float
    weight: float


def find_wrong_labels(e: Embedded, items: Items, seed: int = 0) -> dict | None:
    """Return the estimated number of wrong labels, as {"count": ..., "of": labels}; None unless it is clearly above zero.

    Labels that are exchanged with any class count. Labels that are exchanged with a similar class count only if the embeddings
    separate the classes well: otherwise they look the same as classes that the network confuses.
    """
    rows = drawn_rows(e.y, seed)
    if len(rows) < MIN_CHECKED_ROWS:
        return None
    label, y = e.y[rows].unique(return_inverse=True)
    if len(label) < 2:
        return None
    group = None if items.group is None else torch.as_tensor(items.group)[e.row[rows]]
    with torch.no_grad():
        _, noise = discriminate(e.z[rows].float(), y, len(label), seed=seed, group=group)
    share, checked = wrong_share(noise, y), len(rows) if len(e.y) <= MAX_CHECKED_ROWS else len(e.y)
    count = round(share * checked)
    return {"count": count, "of": checked} if share > 0 and count >= MIN_WRONG_LABELS else None


def drawn_rows(y: Int[torch.Tensor, "N"], seed: int) -> Int[torch.Tensor, "n"]:
    """Return the rows that the estimate is made from, in order: at most `MAX_CHECKED_ROWS`, without those of small classes."""
    rows = torch.arange(len(y))
    if len(rows) > MAX_CHECKED_ROWS:
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        rows = drawn[:MAX_CHECKED_ROWS].sort().values
    _, own, size = y[rows].unique(return_inverse=True, return_counts=True)
    return rows[size[own] >= MIN_CLASS_ROWS]


def wrong_share(noise: Noise, y: Int[torch.Tensor, "N"]) -> float:
    """Return the estimated share of wrong labels; 0 if it may as well be none."""
    if not noise.informative:
        return 0.0
    frequency = torch.bincount(y).double() / len(y)
    explained = noise.gain / float(-(frequency * frequency.log()).sum())
    if explained < MIN_EXPLAINED_SHARE:
        return 0.0
    share = noise.any + (noise.similar if explained >= GOOD_EXPLAINED_SHARE else 0.0)
    least = MIN_WRONG_SHARE if explained >= GOOD_EXPLAINED_SHARE else MIN_WRONG_SHARE_IF_POOR
    return float(share) if np.isfinite(share) and share >= least else 0.0


def check_reviewable(scoring: Scoring) -> None:
    """Raise unless corrected scores can be estimated from a file of reviewed labels."""
    if not str(scoring.review).lower().endswith(".csv"):
        raise LikewiseError(
            f"evaluate: --correct-test-labels must be a .csv file of reviewed labels, got '{scoring.review}'; give review.csv, "
            "which is written as a form if it does not exist"
        )
    if scoring.sample is not None:
        raise LikewiseError(
            "evaluate: --correct-test-labels estimates the scores of all queries from their plain values, but --queries ranks "
            "only a sample of them; drop one of the two"
        )
    if scoring.relevance is not None or scoring.items.label_sets is not None:
        raise LikewiseError(
            "evaluate: --correct-test-labels needs one class per sample and rows of this class as relevant, but here a relevance "
            "decides; drop the flag, or --relevance"
        )
    if scoring.items.camera is not None:
        raise LikewiseError(
            "evaluate: --correct-test-labels needs a gallery that does not depend on labels, but with the column `camera` a "
            "query has no gallery rows of its own class and camera; drop the column, or the flag"
        )
    if all(map(is_set_metric, scoring.metrics)):
        raise LikewiseError(
            "evaluate: --correct-test-labels needs a metric per query, got only metrics of the whole set; add R@1 to --metrics"
        )


def correct_scores(e: Embedded, scoring: Scoring, found: Retrieval) -> dict | None:
    """Return the corrected scores: source, [value, low, high] by metric, and reasons by metric that cannot be corrected.

    None if the file of reviewed labels does not exist: it is then written as a form for reviewers.
    """
    assert scoring.review is not None
    file, depth = Path(scoring.review).expanduser(), reach(scoring.metrics).k
    if not file.exists():
        write_form(file, e, scoring.items, found, depth)
        scoring.say(
            f"wrote {file}: {min(FORM_QUERIES_COUNT, len(found.query))} random queries and their first {depth} neighbours. Enter "
            "the true class of every line into the column `label`, from the top, as far as you like, and run the same command "
            "again"
        )
        return None
    y = e.y.unique(return_inverse=True)[1]
    estimates, unknown = scores_by_review(
        *read_review(scoring.review, e, scoring.items, found, y), y, found, scoring.metrics
    )
    return {
        "source": scoring.review,
        "metrics": {name: list(one) for name, one in estimates.items()},
        "unknown": unknown,
    }


def write_form(file: Path, e: Embedded, items: Items, found: Retrieval, k: int, seed: int = 0) -> None:
    """Write random queries and their first k neighbours, one line per sample, with an empty column `label`."""
    order = torch.randperm(len(found.query), generator=torch.Generator().manual_seed(seed))[:FORM_QUERIES_COUNT]
    listed, lines = set(), []
    for number in order.tolist():
        query = int(found.query[number])
        for place in (query, *(int(near) for near in found.row[number, :k] if near >= 0)):
            if place in listed:
                continue
            listed.add(place)
            row = int(e.row[place])
            path = "" if items.path is None else items.path[row]
            lines.append((int(e.row[query]), row, path, items.class_name[items.y[row]], ""))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_csv(file, FORM_COLUMNS, lines)


def read_review(
    file: str, e: Embedded, items: Items, found: Retrieval, y: Int[torch.Tensor, "N"]
) -> tuple[Int[torch.Tensor, "N"], Int[torch.Tensor, "n"]]:
    """Return the true labels (-1: unknown), and the numbers of the drawn queries in their order.

    A class that no evaluated row was given gets a number of its own.

    Args:
        y: given labels, 0 to C - 1.
    """
    sheet = read_csv(file, "evaluate")
    query, row, label = (sheet.need(name) for name in ("query", "row", "label"))
    place = {int(data_row): at for at, data_row in enumerate(e.row.tolist())}
    number_of_query = {int(e.row[at]): number for number, at in enumerate(found.query.tolist())}
    number_of_class = {items.class_name[items.y[int(e.row[at])]]: int(y[at]) for at in range(len(y))}
    true, drawn = torch.full_like(y, -1), {}
    for line, one_query, one_row, name in zip(sheet.line, query, row, label):
        asked, sample = (_as_row(cell, sheet.file, line) for cell in (one_query, one_row))
        if asked not in number_of_query:
            raise LikewiseError(
                f"evaluate: line {line} of {sheet.file} must name a query of this evaluation, got row {asked}; use the form that "
                "this command writes"
            )
        if sample not in place:
            raise LikewiseError(f"evaluate: line {line} of {sheet.file} must name an evaluated row, got row {sample}")
        drawn.setdefault(number_of_query[asked], None)
        if not name.strip():
            continue
        number = number_of_class.setdefault(name.strip(), len(number_of_class))
        if true[place[sample]] not in (-1, number):
            raise LikewiseError(
                f"evaluate: row {sample} must have one label in {sheet.file}, got another one in line {line}; decide for one"
            )
        true[place[sample]] = number
    return true, torch.tensor(list(drawn), dtype=torch.int64)


def _as_row(cell: str, file: str, line: int) -> int:
    try:
        return int(cell)
    except ValueError:
        raise LikewiseError(
            f"evaluate: query and row in line {line} of {file} must be whole numbers, counted from 0, got {cell!r}"
        ) from None


def scores_by_review(
    label: Int[torch.Tensor, "N"],
    drawn: Int[torch.Tensor, "n"],
    y: Int[torch.Tensor, "N"],
    found: Retrieval,
    names: Sequence[str],
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Return scores under the true labels, and the reason for every metric without one.

    A metric with k uses the drawn queries before the first one that lacks a label, of its own or of its first k neighbours.

    Args:
        label: true labels, -1 where they are not known.
        drawn: numbers of queries in the random order in which they were drawn.
        y: given labels.
        found: the ranking, at least as deep as the metrics. It does not change with the labels.
    """
    estimates, unknown = {}, {}
    given, true = (with_labels(found, labels) for labels in (y, torch.where(label >= 0, label, y)))
    for name in names:
        if not re.fullmatch(r"(R|P|MRR)@[0-9]+", name):
            deep = not is_set_metric(name) and reach([name]).all_hits
            unknown[name] = SET_METRIC_REASON if is_set_metric(name) else ALL_HITS_REASON if deep else COUNT_REASON
            continue
        near = found.row[drawn, : reach([name]).k]
        known = (label[found.query[drawn]] >= 0) & ((label[near.clamp_min(0)] >= 0) | (near < 0)).all(1)
        used = drawn[known.cumprod(0).bool()]
        if len(used) < MIN_REVIEWED_QUERIES:
            unknown[name] = (
                f"an interval needs {MIN_REVIEWED_QUERIES} reviewed queries with their first {near.shape[1]} neighbours, "
                f"got {len(used)}"
            )
        else:
            values = [metric(name)(one).nan_to_num(0).numpy() for one in (true, given)]
            estimates[name] = _estimate(values[0], values[1], used)
    return estimates, unknown


def with_labels(found: Retrieval, y: Int[torch.Tensor, "N"]) -> Retrieval:
    """Return a ranking with the hits that labels give it; rows beyond its depth do not count."""
    match = (y[found.row.clamp_min(0)] == y[found.query, None]) & (found.row >= 0)
    hits = match.sum(1)
    depth = torch.full_like(hits, found.row.shape[1])
    return Retrieval(found.query, found.row, match, found.sim, hits, depth, match.nonzero()[:, 1] + 1, starts(hits))


def _estimate(true: Float[np.ndarray, "Q"], plain: Float[np.ndarray, "Q"], drawn: Int[torch.Tensor, "n"]) -> Estimate:
    """Return the mean of the true values of all queries, from those of the drawn ones and the plain values of all."""
    from scipy.special import stdtrit  # slow to import

    n, others = len(drawn), np.delete(plain, drawn.numpy())
    found = prediction_powered_mean(true[drawn.numpy()], plain[drawn.numpy()], others)
    left = 1 - n / len(plain)  # share of the queries that was not drawn
    squares = (n - 1) * n * found.variance / left if left > 0 else 0.0
    error = math.sqrt(left * (squares + ADDED_SQUARES_COUNT) / (n + 1) / n)
    reach_of_interval = float(stdtrit(n - 1, 0.975)) * error
    low, high = (min(1.0, max(0.0, found.mean + side * reach_of_interval)) for side in (-1, 1))
    return Estimate(min(1.0, max(0.0, found.mean)), low, high)


def prediction_powered_mean(
    true: Float[np.ndarray, "n"],
    predicted: Float[np.ndarray, "n"],
    others: Float[np.ndarray, "m"],
    weight: float | None = None,
) -> Powered:
    """Return the mean of the true values of n + m given units, of which n were drawn at random and their true values are known.

    Formula: mean = mean(true - w predicted) + w mean(predicted of all n + m), w = cov(true, predicted) / var(predicted);
        variance = (1 - n / (n + m)) var(true - w predicted) / n
    Paper: Angelopoulos, Duchi, Zrnic, PPI++: Efficient Prediction-Powered Inference, 2023.
    Differs: the paper's units are a sample of a population, so its w is divided by 1 + n / m, and its variance is
        var(true - w predicted) / n + w^2 var(predicted) / m with the mean of the predictions of the m others. Here the n + m
        units are all there are.

    Args:
        true: true values of the drawn units.
        predicted: predictions for the drawn units.
        others: predictions for all other units.
        weight: of the predictions; None: the one with the smallest variance, in [0, 1].
    """
    n, count = len(true), len(true) + len(others)
    if weight is None:
        table = np.cov(true, predicted)
        weight = float(np.clip(table[0, 1] / table[1, 1], 0, 1)) if table[1, 1] > 0 else 0.0
    rest = true - weight * predicted
    mean = rest.mean() + weight * np.concatenate([predicted, others]).mean()
    return Powered(float(mean), float((1 - n / count) * rest.var(ddof=1) / n), weight)
