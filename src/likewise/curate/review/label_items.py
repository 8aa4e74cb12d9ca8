"""Items of the review page for samples with several labels: each question is about one label of one sample."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from likewise.curate.audit.read import Findings, LabelQuestion
from likewise.curate.review.items import MAX_SHOWN_SAMPLES, ItemFilter, Questions, named
from likewise.curate.review.store import Decision
from likewise.data.label_sets import LABEL_SEPARATOR


@dataclass
class LabelQuestioned:
    """The questions of an audit of label sets: about labels that are flagged, and about the others; as `Questioned`."""

    findings: Findings
    flagged: Questions = field(init=False)
    others: Questions = field(init=False)
    pairs: list[str] = field(init=False, default_factory=list)
    first: dict[int, str] = field(init=False, default_factory=dict)
    kinds: ClassVar = ("label", "pair")

    def __post_init__(self) -> None:
        asked = (self.findings.questions or {}).values()
        self.flagged = {one.item: (one.row,) for one in asked if one.state == "flagged"}
        self.others = {one.item: (one.row,) for one in asked if one.state != "flagged"}

    def rows(self, item: str) -> tuple[int, ...]:
        """Return the row that a question is about."""
        return ((self.findings.questions or {})[item].row,)

    def stored_items(self, item: str) -> list[str]:
        """Return the item of the store that a question decides."""
        return [item]

    def matches(self, item: str, wanted: ItemFilter) -> bool:
        """Return whether a question matches the filter."""
        return matches_label_filter(self.findings, item, wanted)

    def tile(self, item: str, decided: Mapping[str, Decision]) -> dict:
        """Return what the page shows of a question before its details are loaded."""
        return label_tile(self.findings, item, decided)

    def progress(self, kind: str, decided: Collection[str]) -> dict[str, int]:
        """Return how many questions about flagged labels are decided, and how many there are."""
        return {"done": len(self.flagged.keys() & decided), "whole": len(self.flagged)}


def question_of(findings: Findings, item: str) -> LabelQuestion:
    """Return the question of an item."""
    return (findings.questions or {})[item]


def matches_label_filter(findings: Findings, item: str, wanted: ItemFilter) -> bool:
    """Return whether a question matches the filter; its state is its kind, missing or superfluous."""
    one = question_of(findings, item)
    return (
        wanted.label in ("", one.label)
        and wanted.among in ("", findings.sample[one.row].split)
        and wanted.state in ("", one.kind)
        and (one.chance is None or one.chance >= wanted.suspicion - 1e-9)
    )


def label_tile(findings: Findings, item: str, decided: Mapping[str, Decision]) -> dict:
    """Return what the page shows of a question before its details are loaded."""
    one, own = question_of(findings, item), decided.get(item)
    sample = findings.sample[one.row]
    return {
        "item": item,
        "rows": [one.row],
        "labels": [sample.label],
        "tags": sample.label.split(LABEL_SEPARATOR),
        "name": sample.name,
        "label": one.label,
        "question": one.kind,
        "suggested": "",
        "probability": one.chance,
        "state": one.state,
        "flagged": one.state == "flagged",
        "advice": one.advice,
        "choice": own.choice if own else "",
        "new_label": "",
        "note": own.note if own else "",
    }


def label_shown(findings: Findings, item: str, root: str = "") -> dict:
    """Return the content of a question: the sample, the nearest samples with the label and without it, and its neighbours."""
    one = question_of(findings, item)
    sample = findings.sample[one.row]
    near = [row for row in findings.near.get(one.row, []) if row != one.row]
    panel = {
        "row": one.row,
        "label": sample.label,
        "name": sample.name,
        "path": sample.path,
        "file": os.path.join(root, sample.path) if sample.path else "",
        "split": sample.split,
        "chance": one.chance,
        "reason": one.reason,
        "with": rows_shown(findings, one.nearest_with),
        "without": rows_shown(findings, one.nearest_without),
        "near": [named(findings, row) for row in near[:MAX_SHOWN_SAMPLES]],
    }
    return {"panels": [panel]}


def rows_shown(findings: Findings, rows: str) -> list[dict]:
    """Return the samples of a list of rows, those that the audit knows."""
    found = (int(row) for row in rows.split() if row.isdecimal())
    return [named(findings, row) for row in found if row in findings.sample]
