"""Items of the review page: their order, filter and content.

A question is what a reviewer answers at once: about one sample, or about all exact copies of an image with several labels.
Its item is the row of its first sample. Of samples with several labels, a question is about one label of one sample, and its item
has the row and the label.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from PIL import Image

from likewise.curate.audit.read import Findings, LabelQuestion, Sample
from likewise.curate.audit.states import REVIEWED_STATES
from likewise.curate.review.store import Decision
from likewise.data.images import read_image
from likewise.data.label_sets import LABEL_SEPARATOR

MAX_SHOWN_SAMPLES = 6
"""Maximum number of exemplars of a class, of neighbours, and of causes of each direction."""

Questions = dict[str, tuple[int, ...]]
"""Item -> the rows that are decided together."""


@dataclass(frozen=True)
class ItemFilter:
    """Items that the page requests.

    They may be limited to one class (given or suggested), to a given and a suggested class, to one split (samples) or type
    (pairs), to a minimum suspicion (1 - score), and to one state.
    """

    kind: Literal["sample", "pair", "label"]
    label: str = ""
    among: str = ""
    suspicion: float = 0.0
    show: Literal["open", "all", "disputed"] = "open"
    state: str = ""
    given: str = ""
    suggested: str = ""
    flagged: bool = True  # False: samples whose label is not flagged, the most suspect first

    @property
    def is_limit(self) -> bool:
        """Whether there are items that do not match."""
        return (self.label, self.among, self.state, self.given, self.suggested, self.suspicion) != ("",) * 5 + (0,)


def flagged_questions(findings: Findings) -> Questions:
    """Return the questions about samples to review: images with several labels, flagged labels, images of no class."""
    found: Questions = {}
    seen: set[int] = set()
    for one in (*findings.suspects, *findings.off_topic):
        if one.row not in seen:
            copies = findings.same_images.get(one.same_as) if one.same_as is not None else None
            rows = tuple(copies) if one.state == "conflict" and copies else (one.row,)
            seen.update(rows)
            found[str(rows[0])] = rows
    return found


def other_questions(findings: Findings) -> Questions:
    """Return the questions about samples that are not flagged, the most suspect first; labels without a score come last."""
    others = (one for one in findings.sample.values() if one.state not in REVIEWED_STATES)
    return {str(one.row): (one.row,) for one in sorted(others, key=lambda s: (s.score is None, s.score or 0.0, s.row))}


def label_questions(asked: Iterable[LabelQuestion]) -> Questions:
    """Return the questions about single labels in their order."""
    return {one.item: (one.row,) for one in asked}


@dataclass
class Questioned:
    """The questions of an audit: about flagged samples (or single labels), about the others, and about pairs."""

    findings: Findings
    flagged: Questions = field(init=False)
    others: Questions = field(init=False)

    def __post_init__(self) -> None:
        if self.findings.questions is None:
            self.kinds = ("sample", "pair")
            self.flagged, self.others = flagged_questions(self.findings), other_questions(self.findings)
        else:
            self.kinds = ("label", "pair")
            asked = self.findings.questions.values()
            self.flagged = label_questions(one for one in asked if one.state == "flagged")
            self.others = label_questions(one for one in asked if one.state != "flagged")
        self.pairs = [item for item in self.findings.pair if not is_copy_pair(self.findings, item)]
        self.first = {row: item for item, rows in self.flagged.items() for row in rows}  # row -> item of its question
        self.single = {item for item, rows in self.flagged.items() if len(rows) == 1}
        self.copies = [[str(row) for row in rows] for rows in self.flagged.values() if len(rows) > 1]

    def rows(self, item: str) -> tuple[int, ...]:
        """Return the rows that are decided together with an item, or those of a pair."""
        if pair := self.findings.pair.get(item):
            return tuple(row for row in (pair.query, pair.wrong, pair.mate) if row >= 0)
        found = self.flagged.get(item) or self.others.get(item)
        return found or self.flagged[self.first[int(item)]]

    def stored_items(self, item: str) -> list[str]:
        """Return the items of the store that a question decides: the rows of its copies, or the pair or label itself."""
        if item in self.findings.pair or self.findings.questions is not None:
            return [item]
        return [str(row) for row in self.rows(item)]

    def matches(self, item: str, wanted: ItemFilter) -> bool:
        """Return whether an item matches the filter."""
        return matches_filter(self.findings, item, wanted)

    def tile(self, item: str, decided: Mapping[str, Decision]) -> dict:
        """Return what the page shows of a question or a pair before its details are loaded."""
        if item in self.findings.pair:
            return pair_tile(self.findings, item, decided)
        if self.findings.questions is not None:
            return label_tile(self.findings, self.findings.questions[item], decided)
        return tile(self.findings, item, self.rows(item), decided)

    def progress(self, kind: str, decided: Collection[str]) -> dict[str, int]:
        """Return how many questions of a kind are decided, and how many there are."""
        if kind == "pair":
            return {"done": sum(item in decided for item in self.pairs), "whole": len(self.pairs)}
        done = len(self.single.intersection(decided)) + sum(all(row in decided for row in rows) for rows in self.copies)
        return {"done": done, "whole": len(self.flagged)}


def matches_filter(findings: Findings, item: str, wanted: ItemFilter) -> bool:
    """Return whether an item matches the filter."""
    if wanted.kind == "pair":
        pair = findings.pair[item]
        labels = [findings.sample[row].label for row in (pair.query, pair.wrong)]
        return wanted.label in ("", *labels) and wanted.among in ("", pair.type)
    if findings.questions is not None:
        return matches_question(findings, findings.questions[item], wanted)
    one = findings.sample[int(item)]
    group = [findings.sample[row] for row in findings.copies_of(one.row)] if one.state == "conflict" else []
    looks = looks_like(findings, one)
    return (
        wanted.label in ("", one.label, looks, *(copy.label for copy in group))
        and wanted.given in ("", one.label)
        and wanted.suggested in ("", looks)
        and wanted.among in ("", one.split, *(copy.split for copy in group))
        and wanted.state in ("", one.state)
        and (one.score is None or 1 - one.score >= wanted.suspicion - 1e-9)
    )


def matches_question(findings: Findings, one: LabelQuestion, wanted: ItemFilter) -> bool:
    """Return whether a question about a label matches the filter; its state is its kind, missing or superfluous."""
    return (
        wanted.label in ("", one.label)
        and wanted.among in ("", findings.sample[one.row].split)
        and wanted.state in ("", one.kind)
        and (one.chance is None or one.chance >= wanted.suspicion - 1e-9)
    )


def looks_like(findings: Findings, one: Sample) -> str:
    """Return the suggested label; for a label that is not flagged, the commonest other label of its neighbours."""
    if one.suggested or one.state != "ok":
        return one.suggested
    labels = Counter(findings.sample[row].label for row in findings.near.get(one.row, ()) if row != one.row)
    labels.pop(one.label, None)
    return labels.most_common(1)[0][0] if labels else ""


def tile(findings: Findings, item: str, rows: Iterable[int], decided: Mapping[str, Decision]) -> dict:
    """Return what the page shows of a question before its details are loaded.

    Args:
        decided: item -> this reviewer's decision.
    """
    one, rows = findings.sample[int(item)], list(rows)
    made = [decided.get(str(row)) for row in rows]
    own = made[0] if all(made) else None
    return {
        "item": item,
        "rows": rows,
        "labels": [findings.sample[row].label for row in rows],
        "name": one.name,
        "label": one.label,
        "suggested": looks_like(findings, one),
        "probability": suggestion_probability(one),
        "state": one.state,
        "flagged": one.state in REVIEWED_STATES,
        "advice": one.decision,
        "choice": own.choice if own else "",
        "new_label": own.label if own else "",
        "note": own.note if own else "",
    }


def suggestion_probability(one: Sample) -> float | None:
    """Return the probability that the suggested change is right; None: the audit suggests none.

    Formula: (1 - score) * confidence, or the probability that the image fits no class
    """
    if one.state == "off-topic":
        return one.off_topic
    if one.score is None or one.confidence is None:
        return None
    return (1 - one.score) * one.confidence


def label_tile(findings: Findings, one: LabelQuestion, decided: Mapping[str, Decision]) -> dict:
    """Return what the page shows of a question about a label before its details are loaded."""
    sample, own = findings.sample[one.row], decided.get(one.item)
    return {
        "item": one.item,
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


def pair_tile(findings: Findings, item: str, decided: Mapping[str, Decision]) -> dict:
    """Return what the page shows of a pair before its details are loaded."""
    pair, own = findings.pair[item], decided.get(item)
    rows = [row for row in (pair.query, pair.wrong, pair.mate) if row >= 0]
    return {
        "item": item,
        "rows": rows,
        "labels": [findings.sample[row].label for row in rows],
        "name": findings.sample[pair.query].name,
        "type": pair.type,
        "choice": own.choice if own else "",
        "note": own.note if own else "",
    }


def is_copy_pair(findings: Findings, item: str) -> bool:
    """Return whether the query and its wrong neighbour are the same image: that is a question about labels, not a confusion."""
    pair = findings.pair[item]
    first, other = findings.sample[pair.query].same_as, findings.sample[pair.wrong].same_as
    return first is not None and first == other


def is_outdated(findings: Findings, item: str, decided: Mapping[str, Decision]) -> bool:
    """Return whether the reviewer removed or relabelled a sample of a pair, which is then no error any more."""
    pair = findings.pair[item]
    made = (decided.get(str(row)) for row in (pair.query, pair.wrong))
    return any(one is not None and one.choice in ("remove", "relabel") for one in made)


def shown(findings: Findings, item: str, rows: Iterable[int], root: str = "") -> dict:
    """Return the content of an item for the page.

    A sample, or a label of a sample, has one panel, and an image with several labels one per copy. A pair has up to three: the
    query, its nearest sample of another class, and its nearest sample of its own class.

    Args:
        root: folder that relative image paths start from.
    """
    pair, rows = findings.pair.get(item), list(rows)
    if pair is None and findings.questions is not None:
        return {"panels": [label_panel(findings, findings.questions[item], root)]}
    panels = [panel(findings, row, rows, root) for row in rows]
    if pair is None:
        return {"panels": panels}
    found = findings.causes.get((pair.type, item), {})
    causes = {
        name: [{**named(findings, c.row), "relative": c.relative} for c in found.get(name, [])[:MAX_SHOWN_SAMPLES]]
        for name in ("harmful", "helpful")
    }
    return {"panels": panels, "type": pair.type, "distance": pair.distance, **causes}


def panel(findings: Findings, row: int, but: list[int], root: str) -> dict:
    """Return one sample of an item: its line of audit.csv, exemplars of both classes, copies and neighbours."""
    one = findings.sample[row]
    looks = looks_like(findings, one)
    return {
        **{k: v for k, v in one._asdict().items() if k != "carried"},
        "name": one.name,
        "file": os.path.join(root, one.path) if one.path else "",
        "suggested": looks,
        "advice": one.decision,
        "copies": [named(findings, other) for other in findings.copies_of(row)[:MAX_SHOWN_SAMPLES]],
        "claimed": exemplars(findings, row, one.label, but),
        "instead": exemplars(findings, row, looks, but),
        "near": [named(findings, other) for other in findings.near.get(row, [])[:MAX_SHOWN_SAMPLES] if other != row],
    }


def label_panel(findings: Findings, one: LabelQuestion, root: str) -> dict:
    """Return the sample of a question about a label, the nearest samples with the label and without it, and its neighbours."""
    sample = findings.sample[one.row]
    near = [row for row in findings.near.get(one.row, []) if row != one.row]
    return {
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


def rows_shown(findings: Findings, rows: str) -> list[dict]:
    """Return the samples of a list of rows, those that the audit knows."""
    found = (int(row) for row in rows.split() if row.isdecimal())
    return [named(findings, row) for row in found if row in findings.sample]


def named(findings: Findings, row: int) -> dict:
    """Return the row, the label and the file name of a sample."""
    return {"row": row, "label": findings.sample[row].label, "name": findings.sample[row].name}


def exemplars(findings: Findings, row: int, label: str, but: list[int]) -> list[dict]:
    """Return samples of a class, from the split of `row` if it has the class, the least suspect first."""
    split = findings.sample[row].split
    return [named(findings, one) for one in findings.exemplars(split, label, MAX_SHOWN_SAMPLES, but)]


def find_root(findings: Findings, root: str | None = None) -> str:
    """Return the folder that relative image paths start from: the given one, or that of the audit; empty: paths are whole."""
    root = findings.about["root"] if root is None else root
    return os.path.abspath(os.path.expanduser(root)) if root else ""


def load_image(findings: Findings, root: str, row: int) -> Image.Image:
    """Return the image of a row, or the part of it in the box of the row."""
    one = findings.sample[row]
    return read_image(os.path.join(root, one.path), one.box)
