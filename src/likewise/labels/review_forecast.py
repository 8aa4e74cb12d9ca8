"""Order and forecast of a review: the actions with the highest expected gain first, and how much better a head will retrieve.

Order: the expected gain of a sample is the probability that its label is wrong, times the effect of a wrong label. Samples of one
kind are decided at once, so the order is one of groups.
Forecast: how much better a head on the features will retrieve when the first k suspects were reviewed.

True labels are drawn from the label posterior. In every drawn world a reviewer corrects the first k labels of an order to the
labels of that world; one head is trained with the given labels and one with the corrected ones, from the seed of the world. The
spread over the worlds is the uncertainty of the labels and of a training; the measured error of such forecasts is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor

from likewise.labels.many_heads import HeadSettings, score_heads, train_heads
from likewise.labels.posterior_update import Candidates, draw_worlds

INTERVAL_COVERAGE_SHARE = 0.9
"""Probability with which the interval contains the gain of one review and one training."""

WORLDS_COUNT = 16
"""Number of drawn worlds."""

LOG_ODDS_DEVIATION_SCALE = 0.4
"""Standard deviation of the error of the log odds of wrong labels that all labels of a data set share."""

RELATIVE_ERROR_SHARE = 0.3
"""Standard deviation of the relative error of forecast gains: other trainings react to wrong labels more, or less, than ours."""

RANDOM_LOSS_SHARE = 0.5
"""Part of the effect of a wrong label that a drawn label has if it differs from the true one.

True labels follow the images, drawn ones only their probabilities: a drawn label that is not the true one acts as some noise. On
cub200 with 20 % wrong labels, the gain of true labels was 1.2 times (uniform noise) and 1.6 times (similar classes) that of drawn
ones."""

WORLDS_PER_BLOCK = 8
"""Number of worlds whose heads are trained at once."""

MIN_CLASSES, MIN_SAMPLES, MIN_QUERIES = 5, 60, 60
"""Fewest training classes, training samples and queries for which a gain is forecast."""

FLAT_SHARE = 0.9
"""Share of the largest forecast gain at which the curve counts as flat."""

METRICS = ("R@1", "MAP@R")

MIN_GROUP_CONFIDENCE = 0.6
"""Smallest probability of the suggested class with which a sample is decided together with others."""

MAX_GROUP_SIZE = 24
"""Maximum number of samples that are shown and decided at once."""

Grouping = Literal["single", "pair", "suggested"]


@dataclass(frozen=True, eq=False)
class GainCurve:
    """Forecast change of one metric after k reviewed samples, with its interval. Shares, not percent."""

    start: float  # the metric of the head that is trained with the given labels
    mean: Float[np.ndarray, "P"]
    low: Float[np.ndarray, "P"]
    high: Float[np.ndarray, "P"]

    def at(self, k: Int[np.ndarray, "P"], reviewed: float) -> tuple[float, float, float]:
        """Return mean, low and high after any number of reviewed samples, between the points of the curve."""
        mean, low, high = (float(np.interp(reviewed, k, values)) for values in (self.mean, self.low, self.high))
        return mean, low, high


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecast of a review, or the reason why there is none."""

    k: Int[np.ndarray, "P"]  # numbers of reviewed samples; the first is 0
    corrected: Float[np.ndarray, "P"]  # expected number of wrong labels among them
    curves: dict[str, GainCurve]
    reason: str = ""

    @property
    def flat_at(self) -> int | None:
        """Smallest k of the curve with nearly all of the gain in MAP@R; None: no gain is forecast."""
        if not self.curves:
            return None
        mean = self.curves["MAP@R"].mean
        if mean.max() <= 0:
            return None
        return int(self.k[np.flatnonzero(mean >= FLAT_SHARE * mean.max())[0]])


def curve_points(suspects: int, points: int = 5) -> Int[np.ndarray, "P"]:
    """Return the numbers of reviewed samples at which a gain is forecast: 0, and `points` up to all suspects, denser at first."""
    if suspects < 1:
        return np.zeros(1, int)
    share = (np.arange(points + 1) / points) ** 1.5
    return np.unique(np.ceil(share * suspects).astype(int))


@torch.no_grad()
def forecast_review(
    x: Float[Tensor, "N F"], given: Int[Tensor, "N"], candidates: Candidates, order: Int[Tensor, "M"], *,
    train: Bool[Tensor, "N"], test: Bool[Tensor, "N"], k: Sequence[int] | None = None, scored_as_given: bool = True,
    worlds: int = WORLDS_COUNT, settings: HeadSettings = HeadSettings(), seed: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> Forecast:  # fmt: skip
    """Return the forecast change of R@1 and MAP@R of a head when the first k samples of the order are reviewed.

    Formula: gain of world s = (quality(labels corrected in s) - quality(given labels)) * `random_loss`, both trained from seed s;
        interval = mean -+ t sqrt(variance over the worlds (1 + 1/S) + (relative error * mean)^2), t with S - 1 degrees of
        freedom, and at least one query on each side

    Args:
        x: features, the same for all heads; few dimensions (64 to 128) suffice.
        given: given labels, any integers from 0.
        candidates: the label posterior.
        order: rows in the order of the review; rows that are not trained change nothing.
        train: rows that heads are trained with.
        test: rows that are queries and gallery.
        k: points of the curve; by default `curve_points` of all rows of the order.
        scored_as_given: whether retrieval is scored with the given labels of the test rows, as a test does; otherwise with the
            labels of the world.
        worlds: number of worlds, 3 or more.
        progress: is called with the number of worlds that were computed.
    """
    points = curve_points(len(order)) if k is None else np.unique(np.append(0, np.asarray(k, int)))
    corrected = np.append(0, candidates.wrong[order].double().cumsum(0).numpy())[points.clip(0, len(order))]
    reason = why_not(given, order, train, test)
    if reason:
        return Forecast(points, corrected, {}, reason)
    truth = draw_worlds(candidates, worlds, LOG_ODDS_DEVIATION_SCALE, seed)
    classes = torch.zeros(int(max(given.max(), truth.max())) + 1, dtype=torch.bool).index_fill_(0, given[train], True)
    labels = world_labels(given, truth, order, points, classes)[:, :, train]
    start, gains = [], []
    for first in range(0, worlds, WORLDS_PER_BLOCK):
        some = labels[first : first + WORLDS_PER_BLOCK]
        seeds = (seed + first + torch.arange(len(some)))[:, None].expand(-1, len(points))
        w = train_heads(x[train], some.flatten(0, 1), seeds.flatten(), settings)
        scored = (given.expand(len(some), -1) if scored_as_given else truth[first : first + len(some)])[:, None, test]
        found = score_heads(x[test], scored.expand(-1, len(points), -1).flatten(0, 1), w)
        values = torch.stack([found.r1, found.mapr]).double().reshape(2, len(some), len(points))
        start.append(values[:, :, 0])
        gains.append(values - values[:, :, :1])
        progress(len(some))
    gain = torch.cat(gains, 1).numpy() * random_loss(candidates, order, points)
    mean, low, high = predictive_interval(gain)
    least = np.where(corrected > 0, 1 / int(test.sum()), 0.0)  # one query: equal worlds do not prove that none changes
    low, high = np.minimum(low, mean - least), np.maximum(high, mean + least)
    curves = {
        name: GainCurve(float(torch.cat(start, 1)[n].mean()), mean[n], low[n], high[n])
        for n, name in enumerate(METRICS)
    }
    return Forecast(points, corrected, curves)


def world_labels(
    given: Int[Tensor, "N"], truth: Int[Tensor, "S N"], order: Int[Tensor, "M"], k: Int[np.ndarray, "P"],
    classes: Bool[Tensor, "C"],
) -> Int[Tensor, "S P N"]:  # fmt: skip
    """Return the labels of all samples in every world after a review of the first k samples of the order.

    Args:
        classes: which classes are trained; a sample of another class is dropped (label -1).
    """
    place = torch.full_like(given, len(given)).index_copy(0, order, torch.arange(len(order)))
    reviewed = place < torch.as_tensor(k)[:, None]
    return torch.where(reviewed, torch.where(classes[truth], truth, -1)[:, None], given)


def random_loss(candidates: Candidates, order: Int[Tensor, "M"], k: Int[np.ndarray, "P"]) -> Float[np.ndarray, "P"]:
    """Return the factor from the gain of drawn labels to that of true labels, for the first k samples of the order.

    Formula: 1 / (1 - a min(1, E / W)), W = sum of P(wrong), E = sum of (1 - sum over the classes of P^2), the expected numbers of
        wrong labels and of drawn labels that differ from the true ones; a = `RANDOM_LOSS_SHARE`
    """
    p = candidates.probability[order].double()
    wrong = np.append(0, candidates.wrong[order].double().cumsum(0).numpy())[k.clip(0, len(order))]
    missed = np.append(0, (1 - p.square().sum(1)).cumsum(0).numpy())[k.clip(0, len(order))]
    ratio = np.divide(missed, wrong, out=np.zeros(len(k)), where=wrong > 0)
    return 1 / (1 - RANDOM_LOSS_SHARE * ratio.clip(0, 1))


def predictive_interval(
    gain: Float[np.ndarray, "M S P"], relative: float = RELATIVE_ERROR_SHARE, coverage: float = INTERVAL_COVERAGE_SHARE
) -> tuple[Float[np.ndarray, "M P"], Float[np.ndarray, "M P"], Float[np.ndarray, "M P"]]:
    """Return mean, low and high of the gain of one more world, from the gains of S worlds."""
    worlds = gain.shape[1]
    mean = gain.mean(1)
    variance = gain.var(1, ddof=1) * (1 + 1 / worlds) + (relative * mean) ** 2
    half = stdtrit(worlds - 1, (1 + coverage) / 2) * np.sqrt(variance)
    return mean, mean - half, mean + half


def why_not(given: Tensor, order: Tensor, train: Tensor, test: Tensor) -> str:
    """Return why no gain can be forecast; empty if one can."""
    classes, samples, queries = len(given[train].unique()), int(train.sum()), int(test.sum())
    if not len(order):
        return "no label is suspect"
    if classes < MIN_CLASSES or samples < MIN_SAMPLES:
        return f"{samples} training samples of {classes} classes are too few; {MIN_SAMPLES} of {MIN_CLASSES} are needed"
    if queries < MIN_QUERIES or len(given[test].unique()) == queries:
        return f"{queries} samples to search with are too few; {MIN_QUERIES}, some of the same class, are needed"
    return ""


class Action(NamedTuple):
    """Samples that a reviewer decides at once, with one suggested label, and the expected gain of the action."""

    rows: tuple[int, ...]
    suggested: int
    gain: float  # expected, in the units of the effects
    cost: float = 1.0  # expected number of decisions: one, and one for every exception


def label_effects(given: Int[Tensor, "N"], train: Bool[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return how much a wrong label counts in a training, with mean 1 over the training rows; 0 for rows that are not trained.

    Formula: (mean class size) / (size of the given class): a batch draws all classes equally often, so a sample of a small class
        is drawn more often.
    """
    label, place = given.unique(return_inverse=True)
    size = torch.bincount(place[train], minlength=len(label)).double()
    weight = torch.where(train, 1 / size.clamp_min(1)[place], 0)
    total = weight.sum()
    return weight * (int(train.sum()) / total) if float(total) > 0 else weight


def make_actions(
    candidates: Candidates, suspects: Int[Tensor, "M"], gain: Float[Tensor, "N"], *, by: Grouping = "suggested",
    cluster: Int[Tensor, "N"] | None = None, max_size: int = MAX_GROUP_SIZE,
) -> list[Action]:  # fmt: skip
    """Return the actions of a review, the highest expected gain per decision first.

    Confident suspects of one kind are decided at once. Each exception in a group costs one decision more.

    Args:
        gain: expected gain of each sample.
        by: "single": every sample alone; "pair": groups have the same given and the same suggested class; "suggested": the same
            suggested class.
        cluster: number of the cluster of near copies of each sample; other samples of a cluster with the same given and suggested
            class are decided at once too. None: there are no clusters.
        max_size: most samples of a group.
    """
    rows = suspects.tolist()
    sure, best = candidates.probability[:, 1:].amax(1)[suspects].tolist(), candidates.suggested[suspects].tolist()
    own, value = candidates.label[suspects, 0].tolist(), dict(zip(rows, gain[suspects].tolist()))
    copies = [-1 - row for row in rows] if cluster is None else cluster[suspects].tolist()
    groups: dict[tuple, list[int]] = {}
    for row, p, other, given, copy in zip(rows, sure, best, own, copies):
        confident = by != "single" and p >= MIN_GROUP_CONFIDENCE
        key = (other, given if by == "pair" else -1, 0, True) if confident else (other, given, copy, False)
        groups.setdefault(key, []).append(row)
    right, actions = dict(zip(rows, sure)), []
    for (other, *_), members in groups.items():
        members.sort(key=lambda row: (-value[row], row))
        for first in range(0, len(members), max_size):
            some = members[first : first + max_size]
            cost = expected_decisions([right[row] for row in some])
            actions.append(Action(tuple(some), other, sum(value[row] for row in some), cost))
    return sorted(actions, key=lambda one: (-one.gain / one.cost, one.rows))


def expected_decisions(right: Sequence[float]) -> float:
    """Return the expected number of decisions of an action: one, and in a group one more for every exception.

    Args:
        right: probability of each sample that the suggestion about it is right.
    """
    return 1 + (sum(1 - p for p in right) if len(right) > 1 else 0.0)


def remaining_gain(actions: list[Action], block: int) -> float:
    """Return the expected gain of the next `block` decisions; actions with an expected loss count as none."""
    left, found = float(block), 0.0
    for one in actions:
        if left <= 0:
            break
        found += min(1.0, left / one.cost) * max(0.0, one.gain)
        left -= one.cost
    return found
