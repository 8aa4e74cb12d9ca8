"""Order of a review: the actions with the highest expected gain per decision first, and the gain that remains.

The expected gain of a sample is the probability that its label is wrong, times the effect of a wrong label. Samples of one kind
are decided at once, so the order is one of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.labels.label_draws import Candidates

MIN_GROUP_CONFIDENCE = 0.6
"""Smallest probability of the suggested class with which a sample is decided together with others."""

MAX_GROUP_SIZE = 24
"""Maximum number of samples that are shown and decided at once."""

Grouping = Literal["single", "pair", "suggested"]


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
