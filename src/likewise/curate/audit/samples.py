"""The lines of audit.csv as columns: a `Sample` object is made only when it is asked for.

Memory is about 100 bytes per sample and the length of its path. Reading, sorting and counting are calls per column; a lookup by
row is a binary search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple, overload

import numpy as np
from jaxtyping import Bool, Float, Int

from likewise.core.errors import LikewiseError
from likewise.curate.audit.states import REVIEWED_STATES, SuggestedDecision, suggested_decision
from likewise.data.images import folders_of_paths

BOX_CORNERS = ("left", "top", "right", "bottom")
"""Columns of the box of an image."""
CARRIED_COLUMNS = ("split", "query", "gallery", "group", "camera", *BOX_CORNERS, "weight")
"""Columns of the data's own table that audit.csv and the corrected table copy."""

BLOCK_ROWS = 10_000
"""Number of samples that a loop over all of them makes at a time."""


class Sample(NamedTuple):
    """One line of audit.csv."""

    row: int
    path: str
    label: str
    score: float | None  # None: unknown
    suggested: str  # empty: the label is not flagged
    confidence: float | None
    margin: float | None
    reason: str
    split: str
    carried: dict[str, str]
    state: str = ""  # a key of `STATE_DESCRIPTIONS`
    same_as: int | None = None  # lowest row among the exact copies; None: no copy
    off_topic: float | None = None  # probability that the image fits no class; None: not computed

    @property
    def decision(self) -> SuggestedDecision:
        """Return what the audit suggests to do."""
        return suggested_decision(self.state, self.score, self.confidence)

    @property
    def name(self) -> str:
        """Return the file name, or the row of a sample without a file."""
        return PurePath(self.path).name or f"row {self.row}"

    @property
    def box(self) -> list[float] | None:
        """Return (left, top, right, bottom); None: the whole image."""
        corners = [self.carried.get(name, "") for name in BOX_CORNERS]
        return [float(corner) for corner in corners] if all(corners) else None


class Texts(NamedTuple):
    """A column of text: its different texts, and the number of the text of every line."""

    names: list[str]
    code: Int[np.ndarray, "N"]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Texts:
        """Return the column with these cells."""
        number: dict[str, int] = {}
        code = np.array([number.setdefault(cell, len(number)) for cell in cells], np.int32)
        return cls(list(number), code)

    def find(self, text: str) -> Bool[np.ndarray, "N"]:
        """Return which lines have this text."""
        return self.code == (self.names.index(text) if text in self.names else -1)

    def cells(self, places: np.ndarray | list[int] | slice = slice(None)) -> list[str]:
        """Return the texts of some lines."""
        return [self.names[code] for code in self.code[places].tolist()]


class Paths(NamedTuple):
    """A column of text with mostly different cells: all bytes one after another, and where each cell begins and the last ends."""

    text: bytes | memoryview
    begin: Int[np.ndarray, "N+1"]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Paths:
        """Return the column with these cells."""
        encoded = [cell.encode("utf-8", "surrogateescape") for cell in cells]
        return cls(b"".join(encoded), np.cumsum([0, *map(len, encoded)]))

    def cell(self, place: int) -> str:
        """Return the text of one line."""
        return bytes(self.text[self.begin[place] : self.begin[place + 1]]).decode("utf-8", "surrogateescape")

    def encoded(self, places: Int[np.ndarray, "n"]) -> Iterator[bytes]:
        """Yield the bytes of some lines."""
        ends = zip(self.begin[places].tolist(), self.begin[places + 1].tolist(), strict=True)
        return (bytes(self.text[begin:end]) for begin, end in ends)

    def cells(self, places: Int[np.ndarray, "n"]) -> list[str]:
        """Return the texts of some lines."""
        return [one.decode("utf-8", "surrogateescape") for one in self.encoded(places)]

    def folders(self) -> set[str]:
        """Return the folders of all paths that are not empty."""
        text = np.frombuffer(self.text, np.uint8)
        return {folder for folder, _, _ in folders_of_paths(text, self.begin)}


class Samples(Mapping[int, Sample]):
    """All samples of an audit by row, in the order of audit.csv.

    Args:
        numbers: "score", "confidence", "margin" and "off_topic" as float64; NaN: none.
        texts: "label", "suggested", "reason", "split" (never empty) and "state".
        same_as: lowest row among the exact copies; -1: no copy.
        carried: the columns of the data's own table.
        single: names and values of the single scores of every sample.
    """

    def __init__(
        self, row: Int[np.ndarray, "N"], path: Paths, numbers: dict[str, Float[np.ndarray, "N"]], texts: dict[str, Texts],
        same_as: Int[np.ndarray, "N"], carried: dict[str, Texts], single: dict[str, Float[np.ndarray, "N"]],
    ):  # fmt: skip
        self.row, self.path, self.same_as, self.carried, self.single = row, path, same_as, carried, single
        self.score, self.confidence = numbers["score"], numbers["confidence"]
        self.margin, self.off_topic = numbers["margin"], numbers["off_topic"]
        self.label, self.suggested, self.reason = texts["label"], texts["suggested"], texts["reason"]
        self.split, self.state = texts["split"], texts["state"]
        self.order = np.argsort(row, kind="stable")
        self.ascending = row[self.order]

    @classmethod
    def of(cls, samples: Iterable[Sample], single: Mapping[int, Mapping[str, float | None]] | None = None) -> Samples:
        """Return the columns of these samples; `single` has the single scores of some rows."""
        samples, single = list(samples), single or {}

        def numbers(values: Iterable[float | None]) -> np.ndarray:
            return np.array([math.nan if value is None else value for value in values], np.float64)

        def rows(values: Iterable[int | None]) -> np.ndarray:
            try:
                return np.array([-1 if value is None else value for value in values], np.int64)
            except OverflowError:
                raise LikewiseError(
                    "audit: rows of audit.csv must be below 2^63, got a larger one; audit again"
                ) from None

        names = list(dict.fromkeys(name for one in single.values() for name in one))
        numeric, textual = (
            ("score", "confidence", "margin", "off_topic"),
            ("label", "suggested", "reason", "split", "state"),
        )
        carried = list(samples[0].carried) if samples else []
        return cls(
            rows(one.row for one in samples),
            Paths.of(one.path for one in samples),
            {name: numbers(getattr(one, name) for one in samples) for name in numeric},
            {name: Texts.of(getattr(one, name) for one in samples) for name in textual},
            rows(one.same_as for one in samples),
            {name: Texts.of(one.carried[name] for one in samples) for name in carried},
            {name: numbers(single.get(one.row, {}).get(name) for one in samples) for name in names},
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[int]:
        return iter(self.row.tolist())

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int | np.integer) and self.place(int(row)) >= 0

    def __getitem__(self, row: int | np.integer) -> Sample:
        place = self.place(int(row))
        if place < 0:
            raise KeyError(row)
        return self.at(place)

    def values(self) -> SampleList:  # pyright: ignore[reportIncompatibleMethodOverride] - a sequence in place of a view
        """Return all samples."""
        return SampleList(self, np.arange(len(self)))

    def place(self, row: int) -> int:
        """Return the place of a row; -1: there is none."""
        at = int(self.ascending.searchsorted(row)) if -(2**63) <= row < 2**63 else len(self)
        return int(self.order[at]) if at < len(self) and self.ascending[at] == row else -1

    def places(self, rows: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Return the place of every row; -1: there is none."""
        at = self.ascending.searchsorted(rows).clip(max=len(self) - 1)
        return np.where(self.ascending[at] == rows, self.order[at], -1)

    def first_unknown(self, rows: Int[np.ndarray, "n"]) -> int | None:
        """Return the lowest of some rows that no sample has; None: every row has a sample."""
        if not len(rows):
            return None
        last = int(self.ascending[-1])
        if rows.min() >= 0 and rows.max() <= last < 4 * len(self):
            known = np.zeros(last + 1, bool)
            known[self.row] = True
            if known[rows].all():
                return None
        unknown = np.setdiff1d(rows, self.ascending)
        return int(unknown[0]) if len(unknown) else None

    @property
    def has_paths(self) -> bool:
        """Whether a sample has a path."""
        return int(self.path.begin[-1]) > int(self.path.begin[0])

    def labels(self, rows: Iterable[int]) -> list[str]:
        """Return the given labels of some rows."""
        return [self.label.names[self.label.code[self.place(row)]] for row in rows]

    def at(self, place: int) -> Sample:
        """Return the sample at a place."""
        label, suggested, reason, split, state = (
            column.names[column.code[place]]
            for column in (self.label, self.suggested, self.reason, self.split, self.state)
        )
        score, confidence, margin, off_topic = (
            None if (value := float(column[place])) != value else value
            for column in (self.score, self.confidence, self.margin, self.off_topic)
        )
        same = int(self.same_as[place])
        carried = {name: column.names[column.code[place]] for name, column in self.carried.items()}
        return Sample(
            int(self.row[place]), self.path.cell(place), label, score, suggested, confidence, margin, reason, split, carried,
            state, None if same < 0 else same, off_topic,
        )  # fmt: skip

    def some(self, places: Int[np.ndarray, "n"]) -> list[Sample]:
        """Return the samples at some places; faster than one by one."""
        carried = [column.cells(places) for column in self.carried.values()]
        cells = zip(*carried, strict=True) if carried else [()] * len(places)
        names, same = list(self.carried), self.same_as[places].tolist()
        columns = zip(
            self.row[places].tolist(), self.path.cells(places), self.label.cells(places), optional(self.score[places]),
            self.suggested.cells(places), optional(self.confidence[places]), optional(self.margin[places]),
            self.reason.cells(places), self.split.cells(places), (dict(zip(names, one, strict=True)) for one in cells),
            self.state.cells(places), (None if one < 0 else one for one in same), optional(self.off_topic[places]),
            strict=True,
        )  # fmt: skip
        return [Sample(*values) for values in columns]

    def single_scores(self) -> SingleScores:
        """Return the single scores of the samples to review."""
        return SingleScores(self)

    @cached_property
    def reviewed(self) -> Bool[np.ndarray, "N"]:
        """Whether each sample is to be reviewed."""
        return self.in_states(REVIEWED_STATES)

    def in_states(self, states: Iterable[str]) -> Bool[np.ndarray, "N"]:
        """Return whether each sample has one of these states."""
        return np.isin(self.state.code, [number for number, name in enumerate(self.state.names) if name in states])

    def suspects(self) -> SampleList:
        """Return the suspect samples: exact copies with several labels first, image by image; then by score."""
        place = np.flatnonzero(self.in_states(("flagged", "conflict")))
        score, same = np.nan_to_num(self.score[place]), self.same_as[place]
        conflict = self.state.find("conflict")[place]
        lowest, image = np.zeros(len(place)), np.where(conflict, same.clip(0), 0)
        if conflict.any():
            number = np.unique(same[conflict], return_inverse=True)[1]
            least = np.ones(int(number.max()) + 1)
            np.minimum.at(least, number, score[conflict])
            lowest[conflict] = least[number]
        return SampleList(self, place[np.lexsort((self.row[place], score, image, lowest, ~conflict))])

    def outside(self) -> SampleList:
        """Return the samples that probably fit no class, the most likely first."""
        place = np.flatnonzero(self.state.find("off-topic"))
        return SampleList(self, place[np.lexsort((self.row[place], -np.nan_to_num(self.off_topic[place])))])

    def members(self) -> Members:
        """Return (split, class) -> rows, the least suspect first."""
        return Members(self)

    def same_images(self) -> dict[int, list[int]]:
        """Return lowest row -> all rows of every image that has exact copies."""
        found: dict[int, list[int]] = {}
        place = np.flatnonzero(self.same_as >= 0)
        for first, row in zip(self.same_as[place].tolist(), self.row[place].tolist(), strict=True):
            found.setdefault(first, []).append(row)
        return found


def optional(values: Float[np.ndarray, "n"]) -> list[float | None]:
    """Return numbers as a list, with None for NaN."""
    return [None if value != value else value for value in values.tolist()]


class SampleList(Sequence[Sample]):
    """Some samples in an order; each is made when it is asked for."""

    def __init__(self, samples: Samples, place: Int[np.ndarray, "n"]):
        self.samples, self.place = samples, place

    @property
    def row(self) -> Int[np.ndarray, "n"]:
        """The rows of the samples."""
        return self.samples.row[self.place]

    def __len__(self) -> int:
        return len(self.place)

    @overload
    def __getitem__(self, at: int) -> Sample: ...

    @overload
    def __getitem__(self, at: slice) -> SampleList: ...

    def __getitem__(self, at: int | slice) -> Sample | SampleList:
        return (
            SampleList(self.samples, self.place[at]) if isinstance(at, slice) else self.samples.at(int(self.place[at]))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride] - as of lists

    def __iter__(self) -> Iterator[Sample]:
        for begin in range(0, len(self), BLOCK_ROWS):
            yield from self.samples.some(self.place[begin : begin + BLOCK_ROWS])

    def in_state(self, state: str) -> SampleList:
        """Return the samples that have this state, in the same order."""
        return SampleList(self.samples, self.place[self.samples.state.find(state)[self.place]])

    def states(self) -> list[str]:
        """Return the different states, in their order of appearance."""
        code, first = np.unique(self.samples.state.code[self.place], return_index=True)
        return [self.samples.state.names[one] for one in code[first.argsort()]]


class Members(Mapping[tuple[str, str], list[int]]):
    """(split, class) -> rows, the least suspect first; the rows are grouped when the first of them are asked for."""

    def __init__(self, samples: Samples):
        self.samples, self.splits, self.labels = samples, samples.split.names, samples.label.names
        self.count = np.bincount(self.code(), minlength=len(self.splits) * len(self.labels))
        self.split_number = {name: number for number, name in enumerate(self.splits)}
        self.label_number = {name: number for number, name in enumerate(self.labels)}

    def code(self) -> Int[np.ndarray, "N"]:
        """Return the number of the group of every sample."""
        return self.samples.split.code.astype(np.int64) * len(self.labels) + self.samples.label.code

    @cached_property
    def place(self) -> Int[np.ndarray, "N"]:
        """The places of all samples, group by group."""
        return np.argsort(self.code(), kind="stable")

    @cached_property
    def end(self) -> Int[np.ndarray, "G"]:
        """Where every group ends in `place`."""
        return self.count.cumsum()

    def __len__(self) -> int:
        return int((self.count > 0).sum())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        split, label = np.divmod(np.flatnonzero(self.count), max(1, len(self.labels)))
        return ((self.splits[s], self.labels[y]) for s, y in zip(split.tolist(), label.tolist(), strict=True))

    def __getitem__(self, key: tuple[str, str]) -> list[int]:
        split, label = self.split_number.get(key[0], -1), self.label_number.get(key[1], -1)
        group = split * len(self.labels) + label
        if min(split, label) < 0 or not self.count[group]:
            raise KeyError(key)
        own, samples = self.place[self.end[group] - self.count[group] : self.end[group]], self.samples
        order = np.lexsort((samples.row[own], -np.nan_to_num(samples.score[own]), samples.state.code[own] != self.ok))
        return samples.row[own[order]].tolist()

    @cached_property
    def ok(self) -> int:
        """The number of the state "ok"; -1: no sample has it."""
        return self.samples.state.names.index("ok") if "ok" in self.samples.state.names else -1


class SingleScores(Mapping[int, dict[str, float | None]]):
    """Row of a sample to review -> its single scores by name."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return int(self.samples.reviewed.sum())

    def __iter__(self) -> Iterator[int]:
        return iter(self.samples.row[self.samples.reviewed].tolist())

    def __getitem__(self, row: int) -> dict[str, float | None]:
        place = self.samples.place(row)
        if place < 0 or not self.samples.reviewed[place]:
            raise KeyError(row)
        return {name: optional(column[[place]])[0] for name, column in self.samples.single.items()}


class Near(Mapping[int, list[int]]):
    """Row -> nearest rows of the same split, from the arrays of neighbours.npz."""

    def __init__(self, row: Int[np.ndarray, "N"], near: Int[np.ndarray, "N K"]):
        self.order = np.argsort(row, kind="stable")
        self.row, self.near = row[self.order], near

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[int]:
        return iter(self.row.tolist())

    def __getitem__(self, row: int) -> list[int]:
        at = int(self.row.searchsorted(row))
        if at == len(self) or self.row[at] != row:
            raise KeyError(row)
        return [other for other in self.near[self.order[at]].tolist() if other >= 0]

    def rows_beside(self, rows: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
        """Return the rows that have one of some rows (in ascending order) among their nearest."""
        at = rows.searchsorted(self.near).clip(max=len(rows) - 1)
        has = (rows[at] == self.near).any(1) if len(rows) else np.zeros(len(self.near), bool)
        return self.row[has[self.order]]
