"""Store of the reviewers' decisions about an audit, in one SQLite file.

Decisions are appended and never changed: an undo is a row too. The current decisions are the last one of each reviewer
about each item, without those that were undone. Decisions that were made at once share a number in the column `bulk`.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from likewise.audit.read import Findings
from likewise.errors import LikewiseError, nearest_name

CHOICES_BY_KIND = {
    "sample": ("keep", "relabel", "remove", "unsure"), "pair": ("agreeable", "disagreeable"),
    "missing": ("keep", "add", "unsure"), "superfluous": ("keep", "remove", "unsure"),
}  # fmt: skip
"""Kind of item -> the choices of a reviewer. A label of a sample with several labels is missing or superfluous."""
IS_CURRENT_SQL = "choice != 'undo' AND id NOT IN (SELECT undoes FROM decision WHERE undoes IS NOT NULL)"
"""SQL condition of decisions that were not undone."""
FOREIGN_SQL = """
    SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')
    UNION ALL SELECT 1 FROM decision WHERE typeof(undoes) NOT IN ('integer', 'null')
    UNION ALL SELECT 1 FROM decision WHERE 'blob' IN (
        typeof(time), typeof(reviewer), typeof(kind), typeof(item), typeof(choice), typeof(label), typeof(note))
"""
"""SQL query that has a row if a store has what no review writes: a received file may be from another program."""


class Choice(NamedTuple):
    """What a reviewer chose for an item; only the choice "relabel" has a label."""

    item: str
    choice: str
    label: str = ""


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


class Stored(NamedTuple):
    """A stored decision, or the undo of one, and the number of those that were made at once; None: it was made alone."""

    decision: Decision
    bulk: int | None


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
        if self.file.is_symlink():  # tables would be created in the database that it names
            raise LikewiseError(f"review: {self.file} must not be a link; put the file itself there")
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
        if "bulk" not in [column[1] for column in self.base.execute("PRAGMA table_info(decision)")]:
            self.base.execute("ALTER TABLE decision ADD COLUMN bulk INTEGER")  # stores of earlier versions lack it
        if self.base.execute(FOREIGN_SQL).fetchone() is not None:
            raise sqlite3.DatabaseError("it has triggers, views or values that no review writes")
        known = self.base.execute("SELECT fingerprint FROM about").fetchone()
        if known is None:
            self.base.execute("INSERT INTO about VALUES (?)", (self.fingerprint,))
        self.base.execute("COMMIT")
        if known is not None and known[0] != self.fingerprint:
            raise LikewiseError(
                f"review: {self.file.name} holds decisions about other samples or labels than audit.csv; "
                "move it away to start again, or restore its audit.csv"
            )
        choices = {"undo", *(choice for some in CHOICES_BY_KIND.values() for choice in some)}
        for kind, item, choice in self.base.execute("SELECT DISTINCT kind, item, choice FROM decision"):
            if kind not in ("sample", "pair", "label") or choice not in choices:
                raise sqlite3.DatabaseError(f"it has the choice {choice!r} for the {kind} {item}")
            if kind == "sample":  # pairs and labels of another audit of these samples may be gone
                kind_of(self.findings, item)

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
            try:
                yield self.base
            except BaseException:
                if self.base.in_transaction:
                    self.base.execute("ROLLBACK")
                raise
            self.base.execute("COMMIT")

    def decide(
        self, reviewer: str, item: str, choice: str, label: str = "", note: str = "", new_class: bool = False
    ) -> Decision:
        """Append a decision about one item; see `decide_all`."""
        return self.decide_all(reviewer, [Choice(item, choice, label)], note, new_class)[0]

    def decide_all(
        self, reviewer: str, choices: Sequence[Choice], note: str = "", new_class: bool = False
    ) -> list[Decision]:
        """Append decisions about several items, all or none of them, and return the current ones; `undo` undoes them together.

        A repeated request with the current decisions (a browser that retries) adds nothing.

        Args:
            new_class: whether a label may be a class that the data does not have yet.
        """
        reviewer, note = tidy(reviewer), tidy(note)
        if not reviewer:
            raise LikewiseError("review: a decision must have a reviewer, got an empty name; enter your name")
        if len({one.item for one in choices}) != len(choices):
            raise LikewiseError("review: the items of one request must be different; send each item once")
        names, items = "reviewer, kind, item, choice, label, note, bulk", [one.item for one in choices]
        with self.writing() as base:
            known = self.known_classes(base)
            checked = [check(self.findings, one, known, new_class) for one in choices]
            current = {d.item: d for d in self.own_decisions(base, reviewer, items)}
            added = [(reviewer, kind, *one, note) for kind, one in checked]
            added = [one for one in added if one[2] not in current or current[one[2]][2:] != one]
            bulk = (
                base.execute("SELECT coalesce(max(id), 0) + 1 FROM decision").fetchone()[0] if len(added) > 1 else None
            )
            base.executemany(
                f"INSERT INTO decision ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", [(*one, bulk) for one in added]
            )
            current = {d.item: d for d in self.own_decisions(base, reviewer, items)}
        return [current[item] for item in items]

    def own_decisions(self, base: sqlite3.Connection, reviewer: str, items: Sequence[str]) -> list[Decision]:
        """Return a reviewer's current decisions, about these items at least."""
        return current_decisions(base, reviewer, items[0] if len(items) == 1 else None)

    def known_classes(self, base: sqlite3.Connection) -> set[str]:
        """Return the classes of the audit, and those that reviewers added."""
        added = base.execute(f"SELECT DISTINCT label FROM decision WHERE {IS_CURRENT_SQL} AND choice = 'relabel'")
        return {label for _, label in self.findings.members} | {label for (label,) in added}

    def added_classes(self) -> list[str]:
        """Return the classes that reviewers added, in alphabetical order."""
        with self.lock, self.translating_errors():
            return sorted(self.known_classes(self.base) - {label for _, label in self.findings.members})

    def undo(self, reviewer: str) -> list[Decision]:
        """Undo this reviewer's last current decision, with all decisions that were made at once with it; return them.

        The decisions before them become current again. The list is empty if there is nothing to undo.
        """
        reviewer = tidy(reviewer)
        with self.writing() as base:
            last = max(current_decisions(base, reviewer), default=None)
            if last is None:
                return []
            bulk = base.execute("SELECT bulk FROM decision WHERE id = ?", (last.id,)).fetchone()[0]
            together = {last.id}
            if bulk is not None:
                together |= {id for (id,) in base.execute("SELECT id FROM decision WHERE bulk = ?", (bulk,))}
            taken = [d for d in current_decisions(base, reviewer) if d.id in together]
            base.executemany(
                "INSERT INTO decision (reviewer, kind, item, choice, label, note, undoes) VALUES (?, ?, ?, 'undo', '', '', ?)",
                [(reviewer, d.kind, d.item, d.id) for d in taken],
            )
        return taken

    def current_decisions(self, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
        """Return the current decisions, of one reviewer or about one item if given."""
        with self.lock, self.translating_errors():
            return current_decisions(self.base, None if reviewer is None else tidy(reviewer), item)

    def history(self, reviewer: str) -> list[Stored]:
        """Return everything that a reviewer stored, in order of time: decisions that were changed or undone, and undos."""
        names = ", ".join(Decision._fields)
        with self.lock, self.translating_errors():
            found = self.base.execute(
                f"SELECT {names}, bulk FROM decision WHERE reviewer = ? ORDER BY id", (tidy(reviewer),)
            )
            return [Stored(Decision(*line), bulk) for *line, bulk in found]

    def last_id(self, reviewer: str) -> int:
        """Return the id of what a reviewer stored last; 0: nothing. It grows with every decision and every undo."""
        with self.lock, self.translating_errors():
            found = self.base.execute("SELECT max(id) FROM decision WHERE reviewer = ?", (tidy(reviewer),))
            return found.fetchone()[0] or 0

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
    """Return whether an item is a "sample", a "pair" or the "label" of a sample; raise if there is no such item."""
    if item in findings.pair:
        return "pair"
    if findings.questions is not None and item in findings.questions:
        return "label"
    if not (item.isascii() and item.isdecimal() and len(item) < 19 and int(item) in findings.sample):
        raise LikewiseError(f"review: an item must be a row or a pair of this audit, got {item!r}; reload the page")
    return "sample"


def check(findings: Findings, given: Choice, known: Collection[str], new_class: bool) -> tuple[str, Choice]:
    """Return the kind of an item and the choice to store; raise if there is no such item, or it cannot have this choice.

    Args:
        known: the classes that a sample may be relabelled as.
        new_class: whether any other class is possible too.
    """
    item, choice, label = given
    kind = kind_of(findings, item)
    if kind == "sample" and findings.questions is not None:
        raise LikewiseError(
            f"review: samples with several labels are decided label by label, got the row {item}; reload the page"
        )
    of = findings.questions[item].kind if kind == "label" and findings.questions else kind
    if choice not in CHOICES_BY_KIND[of]:
        names, what = ", ".join(CHOICES_BY_KIND[of]), f"{of} label" if kind == "label" else kind
        raise LikewiseError(
            f"review: the choice for a {what} must be one of {names}, got {choice!r}; choose one of these"
        )
    if choice != "relabel":
        return kind, Choice(item, choice)
    label = label if label in known else tidy(label)
    if not label or (label not in known and not new_class):
        near = nearest_name(label, known)
        raise LikewiseError(f"review: a new label must be a class of this audit, got {label!r}{near}")
    if label == findings.sample[int(item)].label:
        raise LikewiseError(f"review: row {item} is labelled {label!r} already; keep it, or choose another class")
    return kind, Choice(item, choice, label)


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


def system_user() -> str:
    """Return the name of the account, which is the first reviewer's name until they change it; empty if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
