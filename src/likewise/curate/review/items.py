"""Items of the review page: their order, filter and content.

A question is what a reviewer answers at once: about one sample, or about all exact copies of an image with several labels.
Its item is the row of its first sample. Of samples with several labels, a question is about one label of one sample, and its item
has the row and the label.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from PIL import Image

from likewise.curate.audit.read import Findings, LabelQuestion, Sample, read_consensus, read_votes, read_workers
from likewise.curate.audit.samples import Near
from likewise.curate.audit.states import REVIEWED_STATES
from likewise.curate.review.store import Decision
from likewise.data.images import read_image
from likewise.data.label_sets import LABEL_SEPARATOR

MAX_SHOWN_SAMPLES = 6
"""Maximum number of exemplars of a class, of neighbours, and of causes of each direction."""
MAX_LISTED_WORKERS = 50
"""Maximum number of workers that the page lists, the least accurate first."""

Questions = Mapping[str, tuple[int, ...]]
"""Item -> the rows that are decided together."""


class LoneQuestions(Mapping[str, tuple[int, ...]]):
    """Questions about one row each, in an order; the items are made when they are asked for."""

    def __init__(self, row: Int[np.ndarray, "n"]):
        self.row = row

    @cached_property
    def ascending(self) -> Int[np.ndarray, "n"]:
        return np.sort(self.row)

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[str]:
        return map(str, self.row.tolist())

    def __getitem__(self, item: str) -> tuple[int, ...]:
        row = int(item) if item.isascii() and item.isdecimal() and len(item) < 19 else -1
        at = int(self.ascending.searchsorted(row))
        if at == len(self) or self.ascending[at] != row:
            raise KeyError(item)
        return (row,)


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
            self.flagged = {one.item: (one.row,) for one in asked if one.state == "flagged"}
            self.others = {one.item: (one.row,) for one in asked if one.state != "flagged"}
        self.pairs = pairs_of_images(self.findings)
        self.first = {row: item for item, rows in self.flagged.items() for row in rows}  # row -> item of its question
        self.single = {item for item, rows in self.flagged.items() if len(rows) == 1}
        self.copies = [[str(row) for row in rows] for rows in self.flagged.values() if len(rows) > 1]

    def rows(self, item: str) -> tuple[int, ...]:
        """Return the rows that are decided together with an item, or those of a pair."""
        if pair := self.findings.pair.get(item):
            return tuple(row for row in (pair.query, pair.wrong, pair.mate) if row >= 0)
        found = self.flagged.get(item) or self.others.get(item)
        return found or self.flagged[self.first[int(item)]]

    def candidates(self, wanted: ItemFilter) -> list[str]:
        """Return the items of this kind that may match a filter, in their order; `matches` decides.

        Samples that cannot match are found for all of them at once.
        """
        if wanted.kind == "pair":
            return self.pairs
        some = self.flagged if wanted.flagged else self.others
        if self.findings.questions is not None or not wanted.is_limit:
            return list(some)
        may = may_match(self.findings, wanted)
        if isinstance(some, LoneQuestions):
            return [str(row) for row in some.row[may[self.findings.sample.places(some.row)]].tolist()]
        first = np.fromiter((rows[0] for rows in some.values()), np.int64, len(some))
        kept = may[self.findings.sample.places(first)].tolist()
        return [item for (item, rows), one in zip(some.items(), kept, strict=True) if one or len(rows) > 1]

    def stored_items(self, item: str) -> list[str]:
        """Return the items of the store that a question decides: the rows of its copies, or the pair or label itself."""
        if item in self.findings.pair or self.findings.questions is not None:
            return [item]
        return [str(row) for row in self.rows(item)]

    def progress(self, kind: str, decided: Collection[str]) -> dict[str, int]:
        """Return how many questions of a kind are decided, and how many there are."""
        if kind == "pair":
            return {"done": sum(item in decided for item in self.pairs), "whole": len(self.pairs)}
        done = len(self.single.intersection(decided)) + sum(all(row in decided for row in rows) for rows in self.copies)
        return {"done": done, "whole": len(self.flagged)}

    def matches(self, item: str, wanted: ItemFilter) -> bool:
        """Return whether an item matches the filter; the state of a question about a label is its kind."""
        findings = self.findings
        if wanted.kind == "pair":
            pair = findings.pair[item]
            labels = findings.sample.labels((pair.query, pair.wrong))
            return wanted.label in ("", *labels) and wanted.among in ("", pair.type)
        if findings.questions is not None:
            one = findings.questions[item]
            return (
                wanted.label in ("", one.label)
                and wanted.among in ("", findings.sample[one.row].split)
                and wanted.state in ("", one.kind)
                and (one.chance is None or one.chance >= wanted.suspicion - 1e-9)
            )
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

    def tile(self, item: str, decided: Mapping[str, Decision]) -> dict:
        """Return what the page shows of a question or a pair before its details are loaded.

        Args:
            decided: item -> this reviewer's decision.
        """
        rows, made = list(self.rows(item)), [decided.get(one) for one in self.stored_items(item)]
        own = made[0] if all(made) else None
        labels = self.findings.sample.labels(rows)
        shared = {
            "item": item, "rows": rows, "labels": labels, "name": self.findings.sample[rows[0]].name,
            "choice": own.choice if own else "", "note": own.note if own else "",
        }  # fmt: skip
        if pair := self.findings.pair.get(item):
            return shared | {"type": pair.type}
        if self.findings.questions is not None:
            one = self.findings.questions[item]
            return shared | {
                "tags": labels[0].split(LABEL_SEPARATOR), "label": one.label, "question": one.kind, "suggested": "",
                "probability": one.chance, "state": one.state, "flagged": one.state == "flagged", "advice": one.advice,
                "new_label": "",
            }  # fmt: skip
        copies = [self.findings.sample[row] for row in rows]
        one = copies[0]
        return shared | {
            "likely": next((copy.label for copy in copies if copy.decision == "keep"), "") if len(rows) > 1 else "",
            "label": one.label, "suggested": looks_like(self.findings, one), "probability": suggestion_probability(one),
            "state": one.state, "flagged": one.state in REVIEWED_STATES, "advice": one.decision,
            "new_label": own.label if own else "",
        }  # fmt: skip

    def content(self, item: str, root: str = "") -> dict:
        """Return the content of an item for the page.

        A sample, or a label of a sample, has one panel, and an image with several labels one per copy. A pair has up to three:
        the query, its nearest sample of another class, and its nearest sample of its own class.

        Args:
            root: folder that relative image paths start from.
        """
        findings, pair, rows = self.findings, self.findings.pair.get(item), self.rows(item)
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


def flagged_questions(findings: Findings) -> Questions:
    """Return the questions about samples to review: images with several labels, flagged labels, images of no class."""
    found: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    samples, place = findings.sample, np.concatenate([findings.suspects.place, findings.off_topic.place])
    same = np.where(samples.state.find("conflict"), samples.same_as, -1)[place]
    for row, first in zip(samples.row[place].tolist(), same.tolist(), strict=True):
        if row not in seen:
            rows = tuple(findings.same_images[first]) if first >= 0 else (row,)
            seen.update(rows)
            found[str(rows[0])] = rows
    return found


def other_questions(findings: Findings) -> LoneQuestions:
    """Return the questions about samples that are not flagged, the most suspect first; labels without a score come last."""
    samples, place = findings.sample, np.flatnonzero(~findings.sample.reviewed)
    return LoneQuestions(samples.row[place[np.lexsort((samples.row[place], samples.score[place]))]])  # NaN is last


def pairs_of_images(findings: Findings) -> list[str]:
    """Return the pairs of two images; if both are the same image, it is a question about labels, not a confusion."""
    samples, pairs = findings.sample, findings.pair.values()
    same = [
        samples.same_as[samples.places(np.fromiter((getattr(one, name) for one in pairs), np.int64, len(pairs)))]
        for name in ("query", "wrong")
    ]
    copies = ((same[0] >= 0) & (same[0] == same[1])).tolist()
    return [item for item, is_copy in zip(findings.pair, copies, strict=True) if not is_copy]


def may_match(findings: Findings, wanted: ItemFilter) -> Bool[np.ndarray, "N"]:
    """Return which samples may match a filter, by what is known without their copies and without a count of neighbours."""
    samples, found = findings.sample, np.ones(len(findings.sample), bool)
    if wanted.given:
        found &= samples.label.find(wanted.given)
    if wanted.state:
        found &= samples.state.find(wanted.state)
    if wanted.among:
        found &= samples.split.find(wanted.among)
    if wanted.suspicion:
        found &= ~(1 - samples.score < wanted.suspicion - 1e-9)
    for name, own in ((wanted.suggested, False), (wanted.label, True)):
        if name:
            given = samples.label.find(name)
            beside = np.zeros(len(samples), bool)  # samples with a neighbour of this class
            if isinstance(findings.near, Near):
                labelled = np.sort(samples.row[given])
                beside[samples.places(findings.near.rows_beside(labelled))] = True
            found &= samples.suggested.find(name) | beside | (given & own)
    return found


def looks_like(findings: Findings, one: Sample) -> str:
    """Return the suggested label; for a label that is not flagged, the commonest other label of its neighbours."""
    if one.suggested or one.state != "ok":
        return one.suggested
    labels = Counter(findings.sample.labels(row for row in findings.near.get(one.row, ()) if row != one.row))
    labels.pop(one.label, None)
    return labels.most_common(1)[0][0] if labels else ""


def suggestion_probability(one: Sample) -> float | None:
    """Return the probability that the suggested change is right; None: the audit suggests none.

    Formula: (1 - score) * confidence, or the probability that the image fits no class
    """
    if one.state == "off-topic":
        return one.off_topic
    if one.score is None or one.confidence is None:
        return None
    return (1 - one.score) * one.confidence


def current_pairs(questions: Questioned, decided: Mapping[str, Decision]) -> list[str]:
    """Return the pairs without those of which the reviewer removed or relabelled a sample: they are no error any more."""
    gone = {int(item) for item, one in decided.items() if one.kind == "sample" and one.choice in ("remove", "relabel")}
    pair = questions.findings.pair
    if not gone:
        return questions.pairs
    return [item for item in questions.pairs if pair[item].query not in gone and pair[item].wrong not in gone]


def panel(findings: Findings, row: int, but: Sequence[int], root: str) -> dict:
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


def exemplars(findings: Findings, row: int, label: str, but: Sequence[int]) -> list[dict]:
    """Return samples of a class, from the split of `row` if it has the class, the least suspect first."""
    split = findings.sample[row].split
    return [named(findings, one) for one in findings.exemplars(split, label, MAX_SHOWN_SAMPLES, but)]


def find_root(findings: Findings, root: str | None = None) -> str:
    """Return the folder that relative image paths start from: the given one, or that of the audit; empty: paths are whole."""
    root = findings.about["root"] if root is None else root
    return os.path.abspath(os.path.expanduser(root)) if root else ""


def load_row_image(findings: Findings, root: str, row: int) -> Image.Image:
    """Return the image of a row, or the part of it in the box of the row."""
    one = findings.sample[row]
    return read_image(os.path.join(root, one.path), one.box)


class WorkerVotes:
    """The votes in the folder of an audit; None, or a folder without votes: there are none."""

    def __init__(self, folder: Path | None):
        self.votes: dict[int, list[dict]] = defaultdict(list)
        for one in [] if folder is None else read_votes(folder):
            self.votes[one.row].append({"worker": one.worker, "label": one.label})
        self.consensus = {} if folder is None else {one.row: one for one in read_consensus(folder)}
        workers = [] if folder is None else read_workers(folder)
        self.workers = [{**one._asdict(), "confusion": one.confusion} for one in workers[:MAX_LISTED_WORKERS]]

    def about(self, row: int) -> dict:
        """Return the votes about a sample, and its consensus with the estimated chance that it is wrong; None: no votes."""
        one = self.consensus.get(row)
        if one is None:
            return {"votes": self.votes.get(row, []), "consensus": None}
        names = ("state", "wrong", "votes", "for_consensus")
        found = {"label": one.consensus, **{name: getattr(one, name) for name in names}}
        return {"votes": self.votes.get(row, []), "consensus": found}
