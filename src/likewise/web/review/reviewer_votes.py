"""Decisions of several reviewers as votes: the consensus of a model of the reviewers, and the quality of each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from likewise.audit.read import Findings
from likewise.numerics.annotators import MAX_VOTED_CLASSES, cast_ballots, decide, fit_workers
from likewise.numerics.worker_quality import worker_quality
from likewise.types import Votes
from likewise.web.review.consensus import Consensus, find_consensus
from likewise.web.review.store import Decision

MIN_MODELLED_REVIEWERS = 3
"""Number of reviewers of an item from which the model decides; with one or two, they must agree."""

REMOVED = "\0remove"
"""Name of the class of samples that reviewers remove: no label of the data has it."""


class Reviewer(NamedTuple):
    """Quality of one reviewer: the share of decisions that agrees with the consensus of all, and its 95 % interval."""

    name: str
    decisions: int
    accuracy: float
    low: float
    high: float
    disagreement: float  # share of the other decisions about the same samples that differ; NaN: there are none


class ReviewedVotes(NamedTuple):
    """The decision about every sample, the probability that it is wrong (None: reviewers agree or are too few), and reviewers."""

    settled: dict[str, Consensus]
    wrong: dict[str, float]
    reviewers: list[Reviewer]


def votes_of_decisions(findings: Findings, decisions: Iterable[Decision]) -> tuple[Votes, list[str], list[str]]:
    """Return the decisions about samples as votes, the reviewed items, and the names of the classes.

    A vote for keeping is a vote for the given label. Removing is a class of its own. "unsure" is no vote.
    """
    made = [d for d in decisions if d.kind == "sample" and d.choice != "unsure"]
    chosen = [d.label or (REMOVED if d.choice == "remove" else findings.sample[int(d.item)].label) for d in made]
    items, names = sorted({d.item for d in made}, key=int), sorted({*chosen})
    reviewers = sorted({d.reviewer for d in made})
    place, number, worker = ({name: at for at, name in enumerate(all_names)} for all_names in (items, names, reviewers))
    columns = ([place[d.item] for d in made], [worker[d.reviewer] for d in made], [number[label] for label in chosen])
    row, who, label = (np.array(column, np.int64) for column in columns)
    return Votes(row, who, label, tuple(reviewers)), items, names


def weigh_decisions(findings: Findings, decisions: Iterable[Decision]) -> ReviewedVotes:
    """Return the consensus of all reviewers, and their quality.

    Items with one or two reviewers are settled by `find_consensus`: these must agree. An item with three reviewers or more is
    settled by the model, which weighs reviewers by their agreement with the others, unless it cannot tell: then the item is
    disputed.
    """
    made = [d for d in decisions if d.kind == "sample"]
    settled, wrong = find_consensus(made), {}
    votes, items, names = votes_of_decisions(findings, made)
    if not len(votes.row) or len(votes.worker_name) < 2 or not 2 <= len(names) <= MAX_VOTED_CLASSES:
        return ReviewedVotes(settled, wrong, [])
    columns = (torch.as_tensor(column) for column in votes[:3])
    ballots = cast_ballots(*columns, len(items), len(votes.worker_name), len(names))
    with torch.no_grad():
        model, q, _ = fit_workers(ballots)
        quality, decided = worker_quality(ballots, q, model), decide(q, ballots.counts)
    by_item = defaultdict(list)
    for d in made:
        if d.choice != "unsure":
            by_item[d.item].append(d)
    for at, item in enumerate(items):
        if len(by_item[item]) >= MIN_MODELLED_REVIEWERS:
            settled[item] = settle(
                findings, item, names[int(decided.label[at])], bool(decided.undecided[at]), by_item[item]
            )
            wrong[item] = float(decided.wrong[at])
    numbers = zip(*(column.tolist() for column in quality[:5]), strict=True)
    reviewers = [Reviewer(name, *values) for name, values in zip(votes.worker_name, numbers, strict=True)]
    return ReviewedVotes(settled, wrong, reviewers)


def settle(findings: Findings, item: str, label: str, undecided: bool, by: list[Decision]) -> Consensus:
    """Return the decision that a label means."""
    if undecided:
        return Consensus("disputed", "", by)
    if label == REMOVED:
        return Consensus("remove", "", by)
    keeps = label == findings.sample[int(item)].label
    return Consensus("keep", "", by) if keeps else Consensus("relabel", label, by)
