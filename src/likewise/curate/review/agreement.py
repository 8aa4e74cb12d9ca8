"""Agreement of reviewers: the decision of all about an item, and Cohen's kappa."""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from likewise.curate.review.store import Decision


class Consensus(NamedTuple):
    """The common decision of all reviewers about an item, and their decisions."""

    choice: str
    label: str
    by: list[Decision]


def agreement(decisions: Iterable[Decision]) -> list[tuple[str, str, str, int, float]]:
    """Return Cohen's kappa for every kind and two reviewers: (kind, one, other, items of both, kappa); NaN if undefined.

    Formula: (p - q) / (1 - q), p the share of equal decisions, q the share expected of two independent reviewers.
    """
    by_key = defaultdict(dict)
    for d in decisions:
        by_key[d.kind, d.reviewer][d.item] = (d.choice, d.label)
    found = []
    for (kind, one), (same, other) in itertools.combinations(sorted(by_key), 2):
        both = sorted(by_key[kind, one].keys() & by_key[same, other].keys()) if kind == same else []
        if both:
            mine, theirs = ([by_key[kind, name][item] for item in both] for name in (one, other))
            p = sum(map(operator.eq, mine, theirs)) / len(both)
            count, again = Counter(mine), Counter(theirs)
            q = sum(count[v] * again[v] for v in count) / len(both) ** 2
            found.append((kind, one, other, len(both), (p - q) / (1 - q) if q < 1 else math.nan))
    return found


def find_consensus(decisions: Iterable[Decision]) -> dict[str, Consensus]:
    """Return the consensus of every item.

    "unsure" decisions are ignored. If the other decisions differ, the item is "disputed", and it stays unchanged until they
    agree; see `settle_decisions` for three reviewers or more.
    """
    by_key = defaultdict(list)
    for d in decisions:
        if d.choice != "unsure":
            by_key[d.item].append(d)
    found = {}
    for item, by in by_key.items():
        views = {(d.choice, d.label) for d in by}
        found[item] = Consensus(*(views.pop() if len(views) == 1 else ("disputed", "")), by)
    return found
