"""What an audit found, read from its folder, and told on the terminal."""

from __future__ import annotations

import csv
import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple, get_type_hints

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from likewise.errors import LikewiseError
from likewise.report.gallery import one_line

SUSPECTS, GROUPS, MERGES = 10, 5, 10
"""How many of each are told on the terminal."""


class Sample(NamedTuple):
    row: int
    path: str
    label: str
    score: float
    suggested: str
    confidence: float | None
    margin: float | None
    reason: str
    split: str

    @property
    def name(self) -> str:
        return PurePath(self.path).name or f"row {self.row}"


class Pair(NamedTuple):
    query: int
    other: int
    type: str
    distance: float
    wrong: int
    mate: int


class Cause(NamedTuple):
    error: str
    kind: str
    direction: str
    place: int
    row: int
    influence: float
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
        return len(set(self.parts.split("-"))) > 1


class Group(NamedTuple):
    """A test class with many errors: how many of its `size` queries fail, and with which classes it is confused."""

    label: str
    part: str
    errors: int
    size: int
    confused: list[tuple[str, int]]


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit's folder, read. `members` are the rows of a class in a part, least suspect first."""

    about: dict
    sample: dict[int, Sample]
    single: dict[int, dict[str, float | None]]  # of suspects: the scores that the one score is made of
    suspects: list[Sample]  # the most suspect first
    members: dict[tuple[str, str], list[int]]
    pairs: list[Pair]
    causes: dict[tuple[str, str], dict[str, list[Cause]]]  # (kind, error) -> direction -> the strongest first
    classes: list[ClassLine]
    duplicates: list[Duplicate]
    near: dict[int, list[int]]  # of suspects: the nearest rows of the same part

    @property
    def across(self) -> dict[str, int]:
        """How many duplicates two parts share, such as {"train-test": 3}."""
        return {parts: count for parts, count in self.about["duplicates"].items() if len(set(parts.split("-"))) > 1}

    def groups(self) -> list[Group]:
        """The classes for which causes were looked for, the worst first."""
        errors = defaultdict(list)
        for pair in self.pairs:
            if pair.type == "confusion":
                errors[self.sample[pair.query].label].append(pair)
        found = []
        for label in (error for kind, error in self.causes if kind == "group" and errors[error]):
            wrong = Counter(self.sample[pair.wrong].label for pair in errors[label])
            part = self.sample[errors[label][0].query].split
            size = len(self.members[part, label])
            found.append(Group(label, part, len(errors[label]), size, wrong.most_common()))
        return found


def read_findings(folder: Path) -> Findings:
    about = read_about(folder / "audit.json")
    sample, single = {}, {}
    for one, cells in read_lines(folder / "audit.csv", Sample):
        sample[one.row] = one
        if one.suggested:
            names = (name for name in about["scores"] if name in cells and name not in Sample._fields)
            single[one.row] = {name: float(cells[name]) if cells[name] else None for name in names}
    best = sorted(sample.values(), key=lambda s: (-s.score, s.row))
    members, causes = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for one in best:
        members[one.split, one.label].append(one.row)
    pairs, listed, classes, duplicates = (
        [one for one, _ in read_lines(folder / f"{name}.csv", kind)] if (folder / f"{name}.csv").exists() else []
        for name, kind in (("pairs", Pair), ("causes", Cause), ("classes", ClassLine), ("duplicates", Duplicate))
    )
    must_be_rows("pairs.csv", (row for p in pairs for row in (p.query, p.other, p.wrong, p.mate) if row != -1), sample)
    must_be_rows("causes.csv", (cause.row for cause in listed), sample)
    must_be_rows("duplicates.csv", (row for d in duplicates for row in (d.row, d.other)), sample)
    for cause in sorted(listed, key=lambda c: c.place):
        causes[cause.kind, cause.error][cause.direction].append(cause)
    order = {(c.kind, c.error): None for c in listed}  # as in the file: the worst first
    suspects = [one for one in reversed(best) if one.suggested]
    near = read_near(folder / "neighbours.npz", sample, single)
    causes = {key: dict(causes[key]) for key in order}
    return Findings(about, sample, single, suspects, members, pairs, causes, classes, duplicates, near)


def read_about(file: Path) -> dict:
    try:
        about = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise LikewiseError(
            f"audit: a folder with {file.name} is wanted, got {file.parent}; run `likewise audit` first"
        ) from None
    except (OSError, ValueError) as error:
        raise LikewiseError(f"audit: {file} cannot be read ({error}); audit again") from None
    nothing = {"parts": {}, "scores": {}, "errors": {}, "duplicates": {}, "notes": []}
    return {**nothing, **{name: value for name, value in about.items() if value is not None}}


KINDS = {
    int: int, float: float, str: str, bool: lambda text: text.lower() in ("1", "true"),
    float | None: lambda text: float(text) if text else None, int | None: lambda text: int(text) if text else None,
}  # fmt: skip


def read_lines(file: Path, record: type[tuple]) -> Iterator[tuple[tuple, dict[str, str]]]:
    """The lines of a table: what the record has a field for, and all cells as they stand."""
    fields = {name: KINDS[kind] for name, kind in get_type_hints(record).items()}
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            for cells in csv.DictReader(text, restval=""):
                yield record(*(kind(cells[name]) for name, kind in fields.items())), cells
    except KeyError as missing:
        raise LikewiseError(f"audit: {file.name} must have the column {missing}, and has none; audit again") from None
    except (OSError, ValueError, csv.Error) as error:
        raise LikewiseError(f"audit: {file} cannot be read ({error}); audit again") from None


def read_near(file: Path, sample: dict[int, Sample], wanted: Iterable[int]) -> dict[int, list[int]]:
    if not file.exists():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            row, near = arrays["row"], arrays["near"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LikewiseError(f"audit: {file.name} must hold 'row' and 'near' ({error}); audit again") from None
    some = np.isin(row, list(wanted))
    must_be_rows(file.name, near[some][near[some] >= 0].tolist(), sample)
    return {int(one): [int(other) for other in others if other >= 0] for one, others in zip(row[some], near[some])}


def must_be_rows(where: str, rows: Iterable[int], sample: dict[int, Sample]) -> None:
    strange = next((row for row in rows if row not in sample), None)
    if strange is not None:
        raise LikewiseError(f"audit: {where} must name rows of audit.csv, got {strange}; audit again")


def show_findings(audited) -> None:
    """What is worth knowing first, and where the rest stands.

    Args:
        audited: has `folder`, and `quiet`, with which nothing is shown.
    """
    if audited.quiet:
        return
    console, found = Console(highlight=False), read_findings(audited.folder)
    show_parts(console, found)
    show_suspects(console, found)
    show_classes(console, found)
    show_groups(console, found)
    if any(found.across.values()):
        told = ", ".join(f"{count} between {parts.replace('-', ' and ')}" for parts, count in found.across.items())
        console.print(f"Near duplicates across parts: {safe(told)}")
    for note in found.about["notes"]:
        console.print(f"Note: {safe(note)}", soft_wrap=True)
    for file, what in (("audit.html", "the report, for any browser"), ("audit.csv", "every sample with its scores")):
        console.print(f"{safe(str(audited.folder / file))}  {what}", soft_wrap=True)
    console.print(f"next: likewise review {safe(str(audited.folder))}", soft_wrap=True)


def show_parts(console: Console, found: Findings) -> None:
    table = titled(found.about["title"], "part", ">samples", ">classes", ">wrong labels (estimated)", ">flagged")
    for name, part in found.about["parts"].items():
        share = f"{part['wrong']:.0f} ({part['wrong'] / max(1, part['samples']):.1%})"
        table.add_row(safe(name), str(part["samples"]), str(part["classes"]), share, str(part["flagged"]))
    console.print(table)
    errors = found.about["errors"]
    if errors.get("queries"):
        share = errors["confusion"] / errors["queries"]
        console.print(f"Test errors: {errors['confusion']} of {errors['queries']} queries ({share:.1%})")


def show_suspects(console: Console, found: Findings) -> None:
    if not found.suspects:
        console.print("No label is suspect.")
        return
    table = titled("The most suspect labels", ">row", "name", "label", "suggested", ">score", "reason")
    for one in found.suspects[:SUSPECTS]:
        words = (one.name, one.label, one.suggested, score_text(one.score), one.reason)
        table.add_row(str(one.row), *map(safe, words))
    console.print(table)


def show_classes(console: Console, found: Findings) -> None:
    merges = merge_candidates(found)
    if merges:
        console.print(f"Classes that are perhaps one ({len(merges)}):")
    for one in merges[:MERGES]:
        told = f"{one.label} -> {one.target}: {one.moved} of {one.size} samples in {one.split}"
        console.print(f"  {safe(told)}", soft_wrap=True)
    if len(merges) > MERGES:
        console.print(f"  and {len(merges) - MERGES} more in classes.csv")


def show_groups(console: Console, found: Findings) -> None:
    groups = found.groups()[:GROUPS]
    if not groups:
        return
    table = titled("The worst test classes", "class", ">errors", "confused most with", "most harmful training sample")
    for group in groups:
        harmful = found.causes["group", group.label].get("harmful", [])
        told = [f"{one.label}, {one.name} (row {one.row})" for one in (found.sample[c.row] for c in harmful[:1])]
        errors = f"{group.errors} of {group.size}"
        table.add_row(safe(group.label), errors, safe(group.confused[0][0]), safe("".join(told)))
    console.print(table)


def merge_candidates(found: Findings) -> list[ClassLine]:
    """Classes whose samples would mostly go to one other class, those that lose the largest share first."""
    return sorted((one for one in found.classes if one.kind == "merge"), key=lambda c: (-c.share, -c.moved, c.label))


def score_text(value: float) -> str:
    """A share with three digits; what would be written as zero, as less than the least."""
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def titled(title: str, *columns: str) -> Table:
    """An empty table; > marks columns of numbers."""
    table = Table(title=safe(title), title_justify="left")
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    return table


def safe(text: str) -> str:
    """A text that neither marks up nor moves the cursor."""
    return escape(one_line(text))
