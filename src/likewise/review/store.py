"""What an audit found, what people decided about it, and the tables that come out.

An audit is a folder with
- `audit.csv`: `row,path,label,score,suggested,confidence,margin,reason` and any others, a line a sample. `row` is its
  line in the items table; `score` is in [0, 1], low = suspect. `suggested` is empty where the label is not suspected,
  `path` where there are no images; `confidence` and `margin` may be.
- `pairs.csv` (may be missing): `query,other,type,distance`, a test error a line: two rows of audit.csv, the `type`
  ("confusion", "mis-similar") and how far apart they are. A pair goes by its rows, "12-40": a new audit keeps verdicts.
- `neighbours.npz` (may be missing): `row`, and `near`, the nearest rows of each, nearest first; -1 = there is none.

Decisions are appended to a SQLite file and never changed: an undo is a row too. What stands is the last decision of
each reviewer about each item that was not undone.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import sqlite3
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from likewise.errors import LikewiseError, nearest_name

VERDICTS = {"sample": ("keep", "relabel", "remove", "unsure"), "pair": ("agreeable", "disagreeable")}
CARRIED = ("split", "query", "gallery", "group", "box", "weight")
"""Columns of the data's own table: where audit.csv has them, the corrected table has them too."""


class Sample(NamedTuple):
    row: int
    path: str
    label: str
    score: float
    suggested: str
    confidence: float | None
    margin: float | None
    reason: str
    carried: dict[str, str]


class Pair(NamedTuple):
    query: int
    other: int
    type: str
    distance: float


class Decision(NamedTuple):
    id: int
    time: str
    reviewer: str
    kind: str
    item: str
    verdict: str
    label: str
    note: str


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit, read. Pairs go by their item, such as "12-40"; `members` are a class's rows, least suspect first."""

    sample: dict[int, Sample]
    pair: dict[str, Pair]
    near: dict[int, list[int]]
    members: dict[str, list[int]]
    fingerprint: str

    def check(self, item: str, verdict: str, label: str) -> str:
        """The kind of an item; raises where there is no such item, or where the verdict does not fit it."""
        kind = "pair" if item in self.pair else "sample"
        if kind == "sample" and not (item.isascii() and item.isdecimal() and int(item) in self.sample):
            raise LikewiseError(
                f"review: a decision is about a row or a pair of this audit, got {item!r}; reload the page"
            )
        if verdict not in VERDICTS[kind]:
            known = ", ".join(VERDICTS[kind])
            raise LikewiseError(f"review: a {kind}'s verdict is one of {known}, got {verdict!r}; choose one of these")
        if verdict == "relabel" and label not in self.members:
            near = nearest_name(label, self.members)
            raise LikewiseError(f"review: a new label must be a class of this audit, got {label!r}{near}")
        if verdict == "relabel" and label == self.sample[int(item)].label:
            raise LikewiseError(f"review: row {item} is labelled {label!r} already; keep it, or choose another class")
        return kind


def read_findings(folder: str | os.PathLike) -> Findings:
    folder = Path(folder)
    sample = {}
    for line, cells in lines(folder / "audit.csv", Sample._fields[:-1]):
        one = Sample(
            number(cells, "row", line, int),
            cells["path"],
            cells["label"],
            number(cells, "score", line),
            cells["suggested"],
            number(cells, "confidence", line) if cells["confidence"] else None,
            number(cells, "margin", line) if cells["margin"] else None,
            cells["reason"],
            {name: cells[name] for name in CARRIED if name in cells},
        )
        if one.row in sample:
            raise LikewiseError(
                f"review: a row stands in audit.csv once, got {one.row} again in line {line}; audit again"
            )
        sample[one.row] = one
    if not sample:
        raise LikewiseError("review: audit.csv must hold samples, and it has none; audit again")
    pair = {}
    if (folder / "pairs.csv").exists():
        for line, cells in lines(folder / "pairs.csv", Pair._fields):
            rows = [number(cells, name, line, int) for name in ("query", "other")]
            must_be_rows(rows, sample, f"pairs.csv line {line}")
            pair["{}-{}".format(*rows)] = Pair(*rows, cells["type"], number(cells, "distance", line))
    members = defaultdict(list)
    for one in sorted(sample.values(), key=lambda s: (-s.score, s.row)):
        members[one.label].append(one.row)
    named = "\0".join(f"{s.row}\0{s.path}\0{s.label}" for s in sample.values())
    near = read_near(folder / "neighbours.npz", sample)
    return Findings(sample, pair, near, dict(members), hashlib.sha256(named.encode()).hexdigest())


def lines(file: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, restval="")
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise LikewiseError(
                    f"review: {file.name} must have the column {missing[0]!r}, it has {reader.fieldnames}; audit again"
                )
            yield from ((reader.line_num, cells) for cells in reader)
    except FileNotFoundError:
        raise LikewiseError(
            f"review: a folder with {file.name} is wanted, got {file.parent}; run `likewise audit` first"
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"review: {file} cannot be read ({error}); audit again") from None


def number(cells: dict[str, str], name: str, line: int, kind: type = float) -> float | int:
    try:
        value = kind(cells[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind is int and value < 0):
        wanted = "a row's number" if kind is int else "a number"
        raise LikewiseError(f"review: {name} must be {wanted}, got {cells[name]!r} in line {line}; audit again")
    return value


def must_be_rows(rows: Iterable[int], sample: dict[int, Sample], where: str) -> None:
    strange = next((row for row in rows if row not in sample), None)
    if strange is not None:
        raise LikewiseError(f"review: {where} must name rows of audit.csv, got {strange}; audit again")


def read_near(file: Path, sample: dict[int, Sample]) -> dict[int, list[int]]:
    if not file.exists():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            row, near = arrays["row"], arrays["near"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LikewiseError(
            f"review: {file.name} must hold the arrays 'row' and 'near' ({error}); audit again"
        ) from None
    if (
        row.ndim != 1
        or near.ndim != 2
        or len(row) != len(near)
        or row.dtype.kind not in "iu"
        or near.dtype.kind not in "iu"
    ):
        raise LikewiseError(
            f"review: {file.name} must hold a line of 'near' a 'row', got {near.shape} and {row.shape}; audit again"
        )
    must_be_rows(np.unique(np.append(row, near[near >= 0])).tolist(), sample, file.name)
    return {
        one: [other for other in others if other >= 0] for one, others in zip(row.tolist(), near.tolist(), strict=True)
    }


class Store:
    """Decisions in one SQLite file: appended, each on disk before its answer, by any number of threads and processes.

    Args:
        file: where; made if it is not there.
        findings: what is decided about. A store of other samples or other labels is refused.
        patience: seconds to wait for another writer.
    """

    def __init__(self, file: str | os.PathLike, findings: Findings, patience: float = 10.0):
        self.file, self.findings, self.patience = Path(file), findings, patience
        self.lock = threading.Lock()
        with self.speaking():
            self.base = sqlite3.connect(self.file, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            with self.speaking():
                self.open()
        except LikewiseError:
            self.base.close()
            raise

    def open(self) -> None:
        if self.base.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages do not fit together")
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("PRAGMA synchronous = FULL")
        self.base.execute("BEGIN IMMEDIATE")
        self.base.execute("CREATE TABLE IF NOT EXISTS about (fingerprint TEXT NOT NULL)")
        self.base.execute(
            "CREATE TABLE IF NOT EXISTS decision (id INTEGER PRIMARY KEY AUTOINCREMENT, "
            "time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')), reviewer TEXT NOT NULL, kind TEXT NOT NULL, "
            "item TEXT NOT NULL, verdict TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL, undoes INTEGER UNIQUE)"
        )
        self.base.execute("CREATE INDEX IF NOT EXISTS by_item ON decision (reviewer, item)")
        known = self.base.execute("SELECT fingerprint FROM about").fetchone()
        if known is None:
            self.base.execute("INSERT INTO about VALUES (?)", (self.findings.fingerprint,))
        self.base.execute("COMMIT")
        if known is not None and known[0] != self.findings.fingerprint:
            raise LikewiseError(
                f"review: {self.file.name} holds decisions about other samples or labels than audit.csv; "
                "move it away to start anew, or bring back its audit.csv"
            )

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """What SQLite has to say, in words a user can act on; nothing half done stays behind."""
        try:
            yield
        except sqlite3.Error as error:
            base = getattr(self, "base", None)
            if base is not None and base.in_transaction:
                base.execute("ROLLBACK")
            if "locked" in str(error) or "busy" in str(error):
                told = f"could not be written for {self.patience:g} s, another program holds it; close that one"
            elif isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                told = f"cannot be opened or written ({error}); check the folder's permissions and the disk's space"
            else:
                told = (
                    f"is damaged or no store of decisions ({error}); move it away to start anew, or bring back a copy"
                )
            raise LikewiseError(f"review: {self.file} {told}") from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time: what is read in here still holds when it is written."""
        with self.lock, self.speaking():
            self.base.execute("BEGIN IMMEDIATE")
            yield self.base
            self.base.execute("COMMIT")

    def decide(self, reviewer: str, item: str, verdict: str, label: str = "", note: str = "") -> Decision:
        """Append a decision. Saying again what stands already (a browser that tries twice) adds nothing."""
        kind = self.findings.check(item, verdict, label)
        reviewer, label, note = tidy(reviewer), label if verdict == "relabel" else "", tidy(note)
        if not reviewer:
            raise LikewiseError("review: a decision has a reviewer, got an empty name; say who you are")
        said = (reviewer, kind, item, verdict, label, note)
        with self.writing() as base:
            last = standing(base, reviewer, item)
            if not last or last[0][2:] != said:
                names = "reviewer, kind, item, verdict, label, note"
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?)", said)
                last = standing(base, reviewer, item)
        return last[0]

    def undo(self, reviewer: str) -> Decision | None:
        """Take back this reviewer's last decision that stands, which is returned; what stood before it stands again."""
        reviewer = tidy(reviewer)
        with self.writing() as base:
            last = max(standing(base, reviewer), default=None)
            if last is not None:
                names = "reviewer, kind, item, verdict, label, note, undoes"
                said = (reviewer, last.kind, last.item, "undo", "", "", last.id)
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", said)
        return last

    def standing(self, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
        with self.lock, self.speaking():
            return standing(self.base, None if reviewer is None else tidy(reviewer), item)

    def close(self) -> None:
        self.base.close()


def tidy(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())


def standing(base: sqlite3.Connection, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
    """The last decision of each reviewer about each item that was not undone, in order of time."""
    where = "verdict != 'undo' AND id NOT IN (SELECT undoes FROM decision WHERE undoes IS NOT NULL)"
    where += " AND reviewer = :reviewer" * (reviewer is not None) + " AND item = :item" * (item is not None)
    last = f"SELECT max(id) FROM decision WHERE {where} GROUP BY reviewer, item"
    found = base.execute(
        f"SELECT id, time, reviewer, kind, item, verdict, label, note FROM decision WHERE id IN ({last}) ORDER BY id",
        {"reviewer": reviewer, "item": item},
    )
    return [Decision(*line) for line in found]
