"""Disputes among three reviewers or more: their decisions are votes, weighed by a model of the reviewers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from likewise.core.types import Votes
from likewise.curate.audit.read import Findings
from likewise.curate.review.agreement import Consensus, find_consensus
from likewise.curate.review.store import Decision

MIN_MODELLED_REVIEWERS = 3
"""Number of reviewers of an item from which votes decide; with two, they must agree."""

REMOVED_CLASS = "\0remove"
"""Name of the class of samples that reviewers remove: no label of the data has it."""


def settle_decisions(findings: Findings, decisions: Iterable[Decision]) -> dict[str, Consensus]:
    """Return the consensus of every item; "disputed" where there is none.

    Reviewers who agree settle an item. If they differ about a sample and are three or more, the choice of more than half of them
    counts, unless the model of the reviewers prefers another or does not decide: it weighs reviewers by their agreement with the
    others on all samples.
    """
    made = list(decisions)
    settled = find_consensus(made)
    open_items = {
        item: chosen
        for item, one in settled.items()
        if one.choice == "disputed" and (chosen := majority(findings, one.by)) is not None
    }
    if open_items:
        likely = likely_labels(findings, made, set(open_items))
        for item, label in open_items.items():
            if likely.get(item) == label:
                settled[item] = as_decision(findings, item, label, settled[item].by)
    return settled


def majority(findings: Findings, by: list[Decision]) -> str | None:
    """Return the label that more than half of the reviewers of a sample choose; None for fewer than three, or for other items."""
    if len(by) < MIN_MODELLED_REVIEWERS or by[0].kind != "sample":
        return None
    label, count = Counter(chosen_label(findings, d) for d in by).most_common(1)[0]
    return label if 2 * count > len(by) else None


def chosen_label(findings: Findings, decision: Decision) -> str:
    """Return the label that a decision about a sample means: keeping is the given label, and removing is a class of its own."""
    if decision.choice == "remove":
        return REMOVED_CLASS
    return decision.label or findings.sample[int(decision.item)].label


def votes_of_decisions(findings: Findings, decisions: Iterable[Decision]) -> tuple[Votes, list[str], list[str]]:
    """Return the decisions about samples as votes, the reviewed items, and the names of the classes; "unsure" is no vote."""
    made = [d for d in decisions if d.kind == "sample" and d.choice != "unsure"]
    chosen = [chosen_label(findings, d) for d in made]
    items, names = sorted({d.item for d in made}, key=int), sorted({*chosen})
    reviewers = sorted({d.reviewer for d in made})
    place, number, worker = ({name: at for at, name in enumerate(all_names)} for all_names in (items, names, reviewers))
    columns = ([place[d.item] for d in made], [worker[d.reviewer] for d in made], [number[label] for label in chosen])
    row, who, label = (np.array(column, np.int64) for column in columns)
    return Votes(row, who, label, tuple(reviewers)), items, names


def likely_labels(findings: Findings, decisions: Iterable[Decision], wanted: set[str]) -> dict[str, str]:
    """Return item -> label by the model of the reviewers, fitted with all decisions; without undecided items."""
    import torch

    from likewise.labels.annotators import MAX_VOTED_CLASSES, ballots_of, decide, fit_workers

    votes, items, names = votes_of_decisions(findings, decisions)
    if len(names) > MAX_VOTED_CLASSES:
        return {}
    ballots = ballots_of(votes, len(items), len(names))
    with torch.no_grad():
        _, q, _ = fit_workers(ballots)
        decided = decide(q, ballots.counts)
    return {
        item: names[int(decided.label[at])]
        for at, item in enumerate(items)
        if item in wanted and not bool(decided.undecided[at])
    }


def as_decision(findings: Findings, item: str, label: str, by: list[Decision]) -> Consensus:
    """Return the decision that a label means."""
    if label == REMOVED_CLASS:
        return Consensus("remove", "", by)
    keeps = label == findings.sample[int(item)].label
    return Consensus("keep", "", by) if keeps else Consensus("relabel", label, by)
