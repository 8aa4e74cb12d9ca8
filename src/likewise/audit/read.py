"""What an audit found, read from its folder: checked whole, or not read at all.

`audit.json` says what was audited and in how many rows; `audit.csv` has a line a sample, and `score` is low where the label is
suspect; the other files may be missing. All of them name samples by their row in the data's table.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import UnionType
from typing import NamedTuple, get_type_hints

import numpy as np

from likewise.errors import LikewiseError
from likewise.io.files import load_arrays

UNSPLIT_NAME = "all"
"""The only part, where the data has none; its samples have an empty `split`."""

BOX_CORNERS = ("left", "top", "right", "bottom")
CARRIED_COLUMNS = ("split", "query", "gallery", "group", *BOX_CORNERS, "weight")
"""Columns of the data's own table: where audit.csv has them, the corrected table has them too."""


class Sample(NamedTuple):
    row: int
    path: str
    label: str
    score: float
    suggested: str  # empty: the label is not suspected
    confidence: float | None
    margin: float | None
    reason: str
    split: str  # the part
    carried: dict[str, str]

    @property
    def name(self) -> str:
        return PurePath(self.path).name or f"row {self.row}"

    @property
    def box(self) -> list[float] | None:
        """left, top, right, bottom; None: the whole picture."""
        corners = [self.carried.get(name, "") for name in BOX_CORNERS]
        return [float(corner) for corner in corners] if all(corners) else None


class Pair(NamedTuple):
    """A test error, with the query's nearest of another class and of its own (-1: it is alone there)."""

    query: int
    other: int
    type: str
    distance: float
    wrong: int
    mate: int


class Cause(NamedTuple):
    """A training sample that matters for an error; `relative` is its influence by the root mean square over all of them."""

    error: str
    kind: str
    direction: str
    place: int
    row: int
    relative: float


class ClassLine(NamedTuple):
    split: str
    label: str
    size: int
    moved: int
    share: float
    target: str
    entropy: float
    kind: str


class Duplicate(NamedTuple):
    row: int
    other: int
    similarity: float
    bits: int | None
    kind: str
    parts: str
    same_label: bool

    @property
    def across(self) -> bool:
        return spans_two_splits(self.parts)


class Group(NamedTuple):
    """A test class with many errors: how many of its `size` queries fail, and with which classes it is confused."""

    label: str
    part: str
    errors: int
    size: int
    confused: list[tuple[str, int]]


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit, read. Pairs go by their rows, such as "12-40": a new audit keeps what people said of them."""

    about: dict
    sample: dict[int, Sample]
    single: dict[int, dict[str, float | None]]  # of suspects: the scores that the one score is made of
    suspects: list[Sample]  # the most suspect first
    members: dict[tuple[str, str], list[int]]  # of a part and a class, the least suspect first
    pair: dict[str, Pair]
    causes: dict[
        tuple[str, str], dict[str, list[Cause]]
    ]  # (kind, error) -> "harmful", "helpful" -> the strongest first
    classes: list[ClassLine]
    duplicates: list[Duplicate]
    near: dict[int, list[int]]  # the nearest rows of the same part

    @property
    def across(self) -> dict[str, int]:
        """How many duplicates two parts share, such as {"train-test": 3}."""
        return {parts: count for parts, count in self.about["duplicates"].items() if spans_two_splits(parts)}

    def merges(self) -> list[ClassLine]:
        """Classes whose samples would mostly go to one other class, those that lose the largest share first."""
        return sorted((one for one in self.classes if one.kind == "merge"), key=lambda c: (-c.share, -c.moved, c.label))

    def groups(self) -> list[Group]:
        """The classes for which causes were looked for, the worst first."""
        errors = defaultdict(list)
        for pair in self.pair.values():
            if pair.type == "confusion":
                errors[self.sample[pair.query].label].append(pair)
        found = []
        for label in (error for kind, error in self.causes if kind == "group" and errors[error]):
            wrong = Counter(self.sample[pair.wrong].label for pair in errors[label])
            part = self.sample[errors[label][0].query].split
            size = len(self.members[part, label])
            found.append(Group(label, part, len(errors[label]), size, wrong.most_common()))
        return found


def spans_two_splits(parts: str) -> bool:
    return len(set(parts.split("-"))) > 1


def read_findings(folder: str | os.PathLike) -> Findings:
    folder = Path(folder)
    about = read_about(folder / "audit.json")
    sample, single = read_samples(folder / "audit.csv", about)
    members, causes = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for one in sorted(sample.values(), key=lambda s: (-s.score, s.row)):
        members[one.split, one.label].append(one.row)
    pairs: list[Pair]
    listed: list[Cause]
    classes: list[ClassLine]
    duplicates: list[Duplicate]
    pairs, listed, classes, duplicates = (  # pyright: ignore[reportAssignmentType] - a list of each kind
        [kind(*values) for _, values, _ in read_lines(folder / f"{name}.csv", kind, sample)]
        if (folder / f"{name}.csv").exists() else []
        for name, kind in (("pairs", Pair), ("causes", Cause), ("classes", ClassLine), ("duplicates", Duplicate))
    )  # fmt: skip
    for cause in sorted(listed, key=lambda c: c.place):  # errors stay as in the file: the worst first
        causes[cause.kind, cause.error][cause.direction].append(cause)
    return Findings(
        about,
        sample,
        single,
        suspects=sorted((sample[row] for row in single), key=lambda s: (s.score, s.row)),
        members=dict(members),
        pair={f"{one.query}-{one.other}": one for one in pairs},
        causes={key: dict(causes[key]) for key in dict.fromkeys((c.kind, c.error) for c in listed)},
        classes=[one._replace(split=one.split or UNSPLIT_NAME) for one in classes],
        duplicates=duplicates,
        near=read_near(folder / "neighbours.npz", sample),
    )


def read_about(file: Path) -> dict:
    nothing = {"parts": {}, "scores": {}, "errors": {}, "duplicates": {}, "notes": []}
    try:
        about = json.loads(file.read_text("utf-8"))
        for name, kind in (("title", str), ("root", str), ("rows", int), ("pictures", bool)):
            if not isinstance(about[name], kind):
                raise ValueError(f"{name} is {about[name]!r}")
        about = nothing | {name: value for name, value in about.items() if value is not None}
        for name, kind in nothing.items():
            if not isinstance(about[name], type(kind)):
                raise ValueError(f"{name} is {about[name]!r}")
        return about
    except (FileNotFoundError, NotADirectoryError):
        raise LikewiseError(
            f"audit: a folder with {file.name} is wanted, got {file.parent}; run `likewise audit` first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LikewiseError(f"audit: {file} is damaged ({error!r}); audit again") from None


def read_samples(file: Path, about: dict) -> tuple[dict[int, Sample], dict[int, dict[str, float | None]]]:
    """All samples, and of those whose label is suspected, every single score."""
    sample, single = {}, {}
    for line, values, cells in read_lines(file, Sample):
        one = Sample(*values, {name: cells[name] for name in CARRIED_COLUMNS if name in cells})  # pyright: ignore[reportCallIssue]
        if not 0 <= one.row < about["rows"] or one.row in sample:
            raise LikewiseError(
                f"audit: line {line} of audit.csv must be that of another row of {about['rows']}, got {one.row}; audit again"
            )
        for name in BOX_CORNERS:
            parse_cell(cells.get(name, ""), float | None, name, line, file)
        sample[one.row] = one._replace(split=one.split or UNSPLIT_NAME)
        if one.suggested:
            names = (name for name in about["scores"] if name in cells and name not in Sample._fields)
            single[one.row] = {name: parse_cell(cells[name], float | None, name, line, file) for name in names}
    if not sample:
        raise LikewiseError("audit: audit.csv must hold samples, and it has none; audit again")
    return sample, single


def read_lines(
    file: Path, record: type, sample: dict[int, Sample] | None = None
) -> Iterator[tuple[int, list, dict[str, str]]]:
    """Of each line: its number, what the record has columns for, and all cells as they stand.

    Columns that name a sample must name one that is there.
    """
    kinds = {name: kind for name, kind in get_type_hints(record).items() if name != "carried"}
    named = [at for at, name in enumerate(kinds) if name in ("row", "query", "other", "wrong", "mate") and sample]
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, restval="")
            missing = [name for name in kinds if name not in (reader.fieldnames or ())]
            if missing:
                raise LikewiseError(
                    f"audit: {file.name} must have the column {missing[0]!r}, and has none; audit again"
                )
            for cells in reader:
                line = reader.line_num
                values = [parse_cell(cells[name], kind, name, line, file) for name, kind in kinds.items()]
                rows = [values[at] for at in named if not (values[at] == -1 and list(kinds)[at] == "mate")]
                check_rows(rows, sample, f"{file.name} line {line}")
                yield line, values, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"audit: {file} cannot be read ({error}); audit again") from None


def parse_cell(text: str, kind: type | UnionType, name: str, line: int, file: Path) -> str | float | int | bool | None:
    if kind is str:
        return text
    if kind is bool:
        return text.lower() in ("1", "true")
    if not text and kind in (int | None, float | None):
        return None
    try:
        value = int(text) if kind in (int, int | None) else float(text)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    raise LikewiseError(f"audit: {name} must be a number, got {text!r} in line {line} of {file.name}; audit again")


def check_rows(rows: Iterable, sample: dict[int, Sample] | None, where: str) -> None:
    strange = next((row for row in rows if sample is None or row not in sample), None)
    if strange is not None:
        raise LikewiseError(f"audit: {where} must name rows of audit.csv, got {strange}; audit again")


def read_near(file: Path, sample: dict[int, Sample]) -> dict[int, list[int]]:
    if not file.exists():
        return {}
    row, near = load_arrays(file, "audit", "audit again", ("row", "near")).values()
    if row.ndim != 1 or near.ndim != 2 or len(row) != len(near) or {row.dtype.kind, near.dtype.kind} - {*"iu"}:
        raise LikewiseError(
            f"audit: {file.name} must hold the rows 'row', and 'near' with a line for each, got {row.dtype} {row.shape} and "
            f"{near.dtype} {near.shape}; audit again"
        )
    check_rows(np.unique(np.append(row, near[near >= 0])).tolist(), sample, file.name)
    return {one: [other for other in others if other >= 0] for one, others in zip(row.tolist(), near.tolist())}


def find_audit(place: str, owner: str) -> Path:
    """Return the folder of an audit: the given folder, or `audit` in the given run's folder."""
    given = Path(place).expanduser()
    folder = next((one for one in (given, given / "audit") if (one / "audit.json").is_file()), None)
    if folder is None:
        raise LikewiseError(
            f"{owner}: the folder of an audit is wanted, with audit.json, or a run with one in `audit`, got '{place}'; "
            "run `likewise audit` first"
        )
    return folder
