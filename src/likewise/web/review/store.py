"""Store of the reviewers' decisions about an audit, in one SQLite file.

Decisions are appended and never changed: an undo is a row too. The current decisions are the last one of each reviewer
about each
item, without those that were undone.
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
"""Kind of item -> the choices of a reviewer."""
IS_CURRENT_SQL = "choice != 'undo' AND id NOT IN (SELECT undoes FROM decision WHERE undoes IS NOT NULL)"
"""SQL condition of decisions that were not undone."""


class Decision(NamedTuple):
    """One row of the store."""

    id: int
    time: str
    reviewer: str
    kind: str
    item: str
    choice: str
    label: str
    note: str


class Store:
    """Decisions in one SQLite file: appended, each on disk before the response, by any number of threads and processes.

    Args:
        file: created if it does not exist.
        findings: the audit that is reviewed. A store for other samples or labels is refused.
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
        """Check the file, create its tables, and compare its fingerprint with the audit."""
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
                "move it away to start again, or restore its audit.csv"
            )

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into sentences with a remedy, and roll back an open transaction."""
        try:
            yield
        except sqlite3.Error as error:
            base = getattr(self, "base", None)
            if base is not None and base.in_transaction:
                base.execute("ROLLBACK")
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without its extension
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                problem = (
                    f"could not be written for {self.timeout:g} s, because another program locks it; close that program"
                )
            elif isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_CORRUPT:
                problem = f"cannot be opened or written ({error}); check the folder's permissions and the disk's space"
            else:
                problem = (
                    f"is damaged or not a store of decisions ({error}); move it away to start again, or restore a copy"
                )
            raise LikewiseError(f"review: {self.file} {problem}") from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock: values that are read inside are still valid when they are written."""
        with self.lock, self.translating_errors():
            self.base.execute("BEGIN IMMEDIATE")
            yield self.base
            self.base.execute("COMMIT")

    def decide(self, reviewer: str, item: str, choice: str, label: str = "", note: str = "") -> Decision:
        """Append a decision. A repeated request with the current decision (a browser that retries) adds nothing."""
        kind = check(self.findings, item, choice, label)
        reviewer, label, note = tidy(reviewer), label if choice == "relabel" else "", tidy(note)
        if not reviewer:
            raise LikewiseError("review: a decision must have a reviewer, got an empty name; enter your name")
        values = (reviewer, kind, item, choice, label, note)
        with self.writing() as base:
            last = current_decisions(base, reviewer, item)
            if not last or last[0][2:] != values:
                names = "reviewer, kind, item, choice, label, note"
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?)", values)
                last = current_decisions(base, reviewer, item)
        return last[0]

    def undo(self, reviewer: str) -> Decision | None:
        """Undo this reviewer's last current decision and return it; the decision before it becomes current again."""
        reviewer = tidy(reviewer)
        with self.writing() as base:
            last = max(current_decisions(base, reviewer), default=None)
            if last is not None:
                names = "reviewer, kind, item, choice, label, note, undoes"
                values = (reviewer, last.kind, last.item, "undo", "", "", last.id)
                base.execute(f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return last

    def current_decisions(self, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
        """Return the current decisions, of one reviewer or about one item if given."""
        with self.lock, self.translating_errors():
            return current_decisions(self.base, None if reviewer is None else tidy(reviewer), item)

    def decided_items(self, reviewer: str, kind: str) -> set[str]:
        """Return the items about which this reviewer has a current decision."""
        with self.lock, self.translating_errors():
            found = self.base.execute(
                f"SELECT DISTINCT item FROM decision WHERE {IS_CURRENT_SQL} AND reviewer = ? AND kind = ?",
                (tidy(reviewer), kind),
            )
            return {item for (item,) in found}

    def close(self) -> None:
        self.base.close()


def fingerprint(findings: Findings) -> str:
    """Return a hash of the samples and their labels: decisions are valid only for these."""
    named = "\0".join(f"{s.row}\0{s.path}\0{s.label}" for s in findings.sample.values())
    return hashlib.sha256(named.encode()).hexdigest()


def kind_of(findings: Findings, item: str) -> str:
    """Return whether an item is a "sample" or a "pair"; raise if there is no such item."""
    if item in findings.pair:
        return "pair"
    if not (item.isascii() and item.isdecimal() and len(item) < 19 and int(item) in findings.sample):
        raise LikewiseError(f"review: an item must be a row or a pair of this audit, got {item!r}; reload the page")
    return "sample"


def check(findings: Findings, item: str, choice: str, label: str) -> str:
    """Return the kind of an item; raise if there is no such item, or if the choice is not one of its kind."""
    kind = kind_of(findings, item)
    if choice not in CHOICES_BY_KIND[kind]:
        known = ", ".join(CHOICES_BY_KIND[kind])
        raise LikewiseError(
            f"review: the choice for a {kind} must be one of {known}, got {choice!r}; choose one of these"
        )
    if choice == "relabel":
        known = {label for _, label in findings.members}
        if label not in known:
            near = nearest_name(label, known)
            raise LikewiseError(f"review: a new label must be a class of this audit, got {label!r}{near}")
        if label == findings.sample[int(item)].label:
            raise LikewiseError(f"review: row {item} is labelled {label!r} already; keep it, or choose another class")
    return kind


def tidy(text: str) -> str:
    """Return a text with single spaces and without invalid characters."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def current_decisions(base: sqlite3.Connection, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
    """Return the last decision of each reviewer about each item that was not undone, in order of time."""
    where = (
        IS_CURRENT_SQL + " AND reviewer = :reviewer" * (reviewer is not None) + " AND item = :item" * (item is not None)
    )
    last = f"SELECT max(id) FROM decision WHERE {where} GROUP BY reviewer, item"
    found = base.execute(
        f"SELECT id, time, reviewer, kind, item, choice, label, note FROM decision WHERE id IN ({last}) ORDER BY id",
        {"reviewer": reviewer, "item": item},
    )
    return [Decision(*line) for line in found]
