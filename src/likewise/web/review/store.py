"""What people decided about the findings of an audit, in one SQLite file.

Decisions are appended and never changed: an undo is a row too. What stands is the last decision of each reviewer about each
item that was not undone.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from likewise.audit.read import Findings
from likewise.errors import LikewiseError, nearest_name

CHOICES_BY_KIND = {"sample": ("keep", "relabel", "remove", "unsure"), "pair": ("agreeable", "disagreeable")}
IS_CURRENT_SQL = "choice != 'undo' AND id NOT IN (SELECT undoes FROM decision WHERE undoes IS NOT NULL)"


class Decision(NamedTuple):
    id: int
    time: str
    reviewer: str
    kind: str
    item: str
    choice: str
    label: str
    note: str


class Store:
    """Decisions in one SQLite file: appended, each on disk before its answer, by any number of threads and processes.

    Args:
        file: where; made if it is not there.
        findings: what is decided about. A store of other samples or other labels is refused.
        timeout: seconds to wait for another writer.
    """

    def __init__(self, file: str | os.PathLike, findings: Findings, timeout: float = 10.0):
        self.file, self.findings, self.timeout = Path(file), findings, timeout
        self.fingerprint = fingerprint(findings)
        self.lock = threading.Lock()
        with self.translating_errors():
            self.base = sqlite3.connect(self.file, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            with self.translating_errors():
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
            "item TEXT NOT NULL, choice TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL, undoes INTEGER UNIQUE)"
        )
        self.base.execute("CREATE INDEX IF NOT EXISTS by_item ON decision (reviewer, item)")
        known = self.base.execute("SELECT fingerprint FROM about").fetchone()
        if known is None:
            self.base.execute("INSERT INTO about VALUES (?)", (self.fingerprint,))
        self.base.execute("COMMIT")
        if known is not None and known[0] != self.fingerprint:
            raise LikewiseError(
                f"review: {self.file.name} holds decisions about other samples or labels than audit.csv; "
                "move it away to start anew, or bring back its audit.csv"
            )

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """What SQLite has to say, in words a user can act on; nothing half done stays behind."""
        try:
            yield
        except sqlite3.Error as error:
            base = getattr(self, "base", None)
            if base is not None and base.in_transaction:
                base.execute("ROLLBACK")
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without its extension
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                told = f"could not be written for {self.timeout:g} s, another program holds it; close that one"
            elif isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_CORRUPT:
                told = f"cannot be opened or written ({error}); check the folder's permissions and the disk's space"
            else:
                told = (
                    f"is damaged or no store of decisions ({error}); move it away to start anew, or bring back a copy"
                )
            raise LikewiseError(f"review: {self.file} {told}") from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time: what is read in here still holds when it is written."""
        with self.lock, self.translating_errors():
            self.base.execute("BEGIN IMMEDIATE")
            yield self.base
            self.base.execute("COMMIT")

    def decide(self, reviewer: str, item: str, choice: str, label: str = "", note: str = "") -> Decision:
        """Append a decision. Saying again what stands already (a browser that tries twice) adds nothing."""
        kind = check(self.findings, item, choice, label)
        reviewer, label, note = tidy(reviewer), label if choice == "relabel" else "", tidy(note)
        if not reviewer:
            raise LikewiseError("review: a decision has a reviewer, got an empty name; say who you are")
        said = (reviewer, kind, item, choice, label, note)
        with self.writing() as base:
            last = standing(base, reviewer, item)
            if not last or last[0][2:] != said:
                names = "reviewer, kind, item, choice, label, note"
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?)", said)
                last = standing(base, reviewer, item)
        return last[0]

    def undo(self, reviewer: str) -> Decision | None:
        """Take back this reviewer's last decision that stands, which is returned; what stood before it stands again."""
        reviewer = tidy(reviewer)
        with self.writing() as base:
            last = max(standing(base, reviewer), default=None)
            if last is not None:
                names = "reviewer, kind, item, choice, label, note, undoes"
                said = (reviewer, last.kind, last.item, "undo", "", "", last.id)
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", said)
        return last

    def standing(self, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
        with self.lock, self.translating_errors():
            return standing(self.base, None if reviewer is None else tidy(reviewer), item)

    def judged(self, reviewer: str, kind: str) -> set[str]:
        """The items of which a decision of this reviewer stands."""
        with self.lock, self.translating_errors():
            found = self.base.execute(
                f"SELECT DISTINCT item FROM decision WHERE {IS_CURRENT_SQL} AND reviewer = ? AND kind = ?",
                (tidy(reviewer), kind),
            )
            return {item for (item,) in found}

    def close(self) -> None:
        self.base.close()


def fingerprint(findings: Findings) -> str:
    """Of the samples and their labels: decisions about others are not about these."""
    named = "\0".join(f"{s.row}\0{s.path}\0{s.label}" for s in findings.sample.values())
    return hashlib.sha256(named.encode()).hexdigest()


def kind_of(findings: Findings, item: str) -> str:
    """Whether an item is a "sample" or a "pair"; raises where there is no such item."""
    if item in findings.pair:
        return "pair"
    if not (item.isascii() and item.isdecimal() and len(item) < 19 and int(item) in findings.sample):
        raise LikewiseError(f"review: an item is a row or a pair of this audit, got {item!r}; reload the page")
    return "sample"


def check(findings: Findings, item: str, choice: str, label: str) -> str:
    """The kind of an item; raises where there is no such item, or where the choice does not fit it."""
    kind = kind_of(findings, item)
    if choice not in CHOICES_BY_KIND[kind]:
        known = ", ".join(CHOICES_BY_KIND[kind])
        raise LikewiseError(f"review: a {kind}'s choice is one of {known}, got {choice!r}; choose one of these")
    if choice == "relabel":
        known = {label for _, label in findings.members}
        if label not in known:
            near = nearest_name(label, known)
            raise LikewiseError(f"review: a new label must be a class of this audit, got {label!r}{near}")
        if label == findings.sample[int(item)].label:
            raise LikewiseError(f"review: row {item} is labelled {label!r} already; keep it, or choose another class")
    return kind


def tidy(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())


def standing(base: sqlite3.Connection, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
    """The last decision of each reviewer about each item that was not undone, in order of time."""
    where = (
        IS_CURRENT_SQL + " AND reviewer = :reviewer" * (reviewer is not None) + " AND item = :item" * (item is not None)
    )
    last = f"SELECT max(id) FROM decision WHERE {where} GROUP BY reviewer, item"
    found = base.execute(
        f"SELECT id, time, reviewer, kind, item, choice, label, note FROM decision WHERE id IN ({last}) ORDER BY id",
        {"reviewer": reviewer, "item": item},
    )
    return [Decision(*line) for line in found]
