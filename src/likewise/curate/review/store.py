"""Store of the reviewers' decisions about an audit, in one SQLite file.

Decisions are appended and never changed: an undo is a row too. The current decisions are the last one of each reviewer
about each item, without those that were undone. Decisions that were made at once share a number in the column `bulk`.

One thread writes. Requests that arrive while it commits are committed together in the next transaction, and each is answered
after its own transaction is on disk. Reads take a copy of the rows in memory, which is updated with the rows that it lacks.

A class name may have bytes that are not UTF-8 (lone surrogates in Python): the file has these bytes.
"""

from __future__ import annotations

import getpass
import hashlib
import itertools
import math
import os
import sqlite3
import sys
import threading
import time
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from likewise.core.errors import LikewiseError, nearest_name
from likewise.curate.audit.read import Findings
from likewise.curate.audit.samples import BLOCK_ROWS

CHOICES_BY_KIND = {
    "sample": ("keep", "relabel", "remove", "unsure"), "pair": ("agreeable", "disagreeable"),
    "missing": ("keep", "add", "unsure"), "superfluous": ("keep", "remove", "unsure"),
}  # fmt: skip
"""Kind of item -> the choices of a reviewer. A label of a sample with several labels is missing or superfluous."""
TEXT_COLUMNS = ("reviewer", "kind", "item", "choice", "label", "note")
INSERT_SQL = (
    f"INSERT INTO decision (id, {', '.join(TEXT_COLUMNS)}, bulk, undoes) "
    f"VALUES (?, {', '.join(['CAST(? AS TEXT)'] * len(TEXT_COLUMNS))}, ?, ?)"
)
"""SQL that appends a row; texts are passed as bytes."""
OTHERS_SECONDS = 0.05
"""Time after which reads look for rows that other processes have added."""
MAX_BATCH = 256
"""Maximum number of requests that one transaction commits."""
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


class Ledger:
    """The rows of a store in memory: current decisions by reviewer and by item, and the history of every reviewer.

    Rows are appended and never changed, so an update reads only the rows after the last one that was read.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0
        self.history: dict[str, list[Stored]] = defaultdict(list)
        self.by_reviewer: dict[str, dict[str, Decision]] = defaultdict(dict)
        self.by_item: dict[str, dict[str, Decision]] = defaultdict(dict)
        self.added: Counter[str] = Counter()  # label -> number of decisions to relabel as it that were not undone
        self.bulk: dict[int, int] = {}  # id -> number of the decisions that were made at once with it
        self._standing: dict[tuple[str, str], list[Decision]] = defaultdict(list)  # not undone, the oldest first

    def update(self, base: sqlite3.Connection) -> None:
        """Read the rows of the store that are new. Callers hold the lock."""
        columns = ", ".join(Decision._fields)
        found = base.execute(f"SELECT {columns}, bulk, undoes FROM decision WHERE id > ? ORDER BY id", (self.last,))
        for id, when, *texts, bulk, undoes in found.fetchall():
            self._add(Stored(Decision(id, when, *map(sys.intern, texts)), bulk), undoes)

    def rows(self, reviewer: str, ids: range) -> list[Decision]:
        """Return the rows of a reviewer with these ids, which are among their last. Callers hold the lock."""
        late = itertools.takewhile(lambda one: one.decision.id >= ids.start, reversed(self.history.get(reviewer, [])))
        return [one.decision for one in late if one.decision.id in ids]

    def _add(self, stored: Stored, undoes: int | None) -> None:
        one = stored.decision
        self.last = one.id
        self.history[one.reviewer].append(stored)
        standing = self._standing[one.reviewer, one.item]
        if undoes is None:
            standing.append(one)
            changed = [one]
            if stored.bulk is not None:
                self.bulk[one.id] = stored.bulk
        else:
            changed = [d for d in standing if d.id == undoes]
            standing[:] = [d for d in standing if d.id != undoes]
        for d in changed:
            if d.choice == "relabel":
                self.added[d.label] += 1 if undoes is None else -1
                if not self.added[d.label]:
                    del self.added[d.label]
        for own, key in ((self.by_reviewer[one.reviewer], one.item), (self.by_item[one.item], one.reviewer)):
            if standing:
                own[key] = standing[-1]
            else:
                own.pop(key, None)


Answer = Callable[[list[Decision]], list[Decision]]
"""Appended rows of a request -> the answer to it."""


@dataclass(eq=False)
class Request:
    """A change of the store that waits for its transaction: `prepare` returns the rows to append and the answer, or raises."""

    reviewer: str
    prepare: Callable[[], tuple[list[tuple], Answer]]
    done: Future[list[Decision]] = field(default_factory=Future)


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
        self.classes = {label: 0 for _, label in findings.members}
        self.lock, self.ledger = threading.Lock(), Ledger()
        self.updated = -math.inf  # time of the last look for rows of other processes
        self.waiting: list[Request] = []
        self.writer = ThreadPoolExecutor(1, "commit")
        if self.file.is_symlink():  # tables would be created in the database that it names
            raise LikewiseError(f"review: {self.file} must not be a link; put the file itself there")
        with self.translating_errors():
            self.base = self.connect()
        try:
            with self.translating_errors():
                self.open()
                self.reader = self.connect()  # of its own: a commit does not delay it
                self.ledger.update(self.reader)
        except LikewiseError:
            self.base.close()
            raise

    def connect(self) -> sqlite3.Connection:
        """Return a new connection to the file."""
        base = sqlite3.connect(self.file, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        base.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        return base

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
        """Turn errors of SQLite into sentences with a remedy."""
        try:
            yield
        except sqlite3.Error as error:
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
                self.base.execute("COMMIT")
            except BaseException:
                if self.base.in_transaction:
                    self.base.execute("ROLLBACK")
                raise
            with self.ledger.lock:
                self.ledger.update(self.base)

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        """Hold the rows in memory: all that this process has committed, and those of others after OTHERS_SECONDS at most."""
        with self.ledger.lock, self.translating_errors():
            now = time.monotonic()
            if now - self.updated >= OTHERS_SECONDS:
                self.ledger.update(self.reader)
                self.updated = now
            yield self.ledger

    def submit(self, reviewer: str, prepare: Callable[[], tuple[list[tuple], Answer]]) -> Future[list[Decision]]:
        """Return a future of the answer to a change, which is set when the change is on disk."""
        request = Request(reviewer, prepare)
        self.waiting.append(request)
        self.writer.submit(self._commit_waiting)
        return request.done

    def _commit_waiting(self) -> None:
        """Commit the waiting requests in one transaction, one of each reviewer: `prepare` sees committed rows only."""
        first_of = {one.reviewer: one for one in reversed(self.waiting[:MAX_BATCH])}
        taken = [one for one in self.waiting[:MAX_BATCH] if one is first_of.get(one.reviewer)]
        for one in taken:
            self.waiting.remove(one)
        taken = [one for one in taken if one.done.set_running_or_notify_cancel()]
        if not taken:  # an earlier call committed them together with its own
            return
        try:
            with self.writing() as base:
                with self.ledger.lock:
                    self.ledger.update(base)
                last, lines, answers = self.ledger.last, [], []
                for one in taken:
                    try:
                        rows, answer = one.prepare()
                    except LikewiseError as error:
                        one.done.set_exception(error)
                        continue
                    lines += numbered(rows, last)
                    answers.append((one, answer, range(last + 1, last + len(rows) + 1)))
                    last += len(rows)
                base.executemany(INSERT_SQL, lines)
            with self.ledger.lock:
                found = [answer(self.ledger.rows(one.reviewer, ids)) for one, answer, ids in answers]
        except BaseException as error:
            for one in taken:
                if not one.done.done():
                    one.done.set_exception(error)
        else:
            for (one, *_), decisions in zip(answers, found, strict=True):
                one.done.set_result(decisions)

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
        return self.submit_decisions(reviewer, choices, note, new_class).result()

    def submit_decisions(
        self, reviewer: str, choices: Sequence[Choice], note: str = "", new_class: bool = False
    ) -> Future[list[Decision]]:
        """Return a future of `decide_all`."""
        reviewer, note = tidy(reviewer), tidy(note)
        if not reviewer:
            raise LikewiseError("review: a decision must have a reviewer, got an empty name; enter your name")
        if len({one.item for one in choices}) != len(choices):
            raise LikewiseError("review: the items of one request must be different; send each item once")

        def prepare() -> tuple[list[tuple], Answer]:
            known = self.known_classes()
            checked = [check(self.findings, one, known, new_class) for one in choices]
            current = self.ledger.by_reviewer.get(reviewer, {})
            before = {one.item: current[one.item] for one in choices if one.item in current}
            added = [(reviewer, kind, *one, note, None) for kind, one in checked]
            added = [one for one in added if one[2] not in before or before[one[2]][2:] != one[:-1]]

            def answer(appended: list[Decision]) -> list[Decision]:
                now = before | {d.item: d for d in appended}
                return [now[one.item] for one in choices]

            return added, answer

        return self.submit(reviewer, prepare)

    def known_classes(self) -> Collection[str]:
        """Return the classes of the audit, and those that reviewers added."""
        return ChainMap(self.classes, self.ledger.added)

    def added_classes(self) -> list[str]:
        """Return the classes that reviewers added, in alphabetical order."""
        with self.reading() as ledger:
            return sorted(ledger.added.keys() - self.classes.keys())

    def undo(self, reviewer: str) -> list[Decision]:
        """Undo this reviewer's last current decision, with all decisions that were made at once with it; return them.

        The decisions before them become current again. The list is empty if there is nothing to undo.
        """
        return self.submit_undo(reviewer).result()

    def submit_undo(self, reviewer: str) -> Future[list[Decision]]:
        """Return a future of `undo`."""
        reviewer = tidy(reviewer)

        def prepare() -> tuple[list[tuple], Answer]:
            current = self.ledger.by_reviewer.get(reviewer, {}).values()
            last = max(current, default=None)
            if last is None:
                return [], lambda appended: []
            bulk = self.ledger.bulk.get(last.id)
            taken = [last] if bulk is None else sorted(d for d in current if self.ledger.bulk.get(d.id) == bulk)
            return [(reviewer, d.kind, d.item, "undo", "", "", d.id) for d in taken], lambda appended: taken

        return self.submit(reviewer, prepare)

    def current_decisions(self, reviewer: str | None = None, item: str | None = None) -> list[Decision]:
        """Return the current decisions, of one reviewer or about one item if given, in order of time."""
        with self.reading() as ledger:
            return find_current(ledger, None if reviewer is None else tidy(reviewer), item)

    def decided(self, reviewer: str) -> dict[str, Decision]:
        """Return a reviewer's current decisions by item."""
        with self.reading() as ledger:
            return dict(ledger.by_reviewer.get(tidy(reviewer), {}))

    def history(self, reviewer: str, begin: int = 0) -> list[Stored]:
        """Return everything that a reviewer stored, in order of time: decisions that were changed or undone, and undos.

        Args:
            begin: number of rows to leave out, the oldest ones.
        """
        with self.reading() as ledger:
            return ledger.history.get(tidy(reviewer), [])[begin:]

    def last_id(self, reviewer: str) -> int:
        """Return the id of what a reviewer stored last; 0: nothing. It grows with every decision and every undo."""
        with self.reading() as ledger:
            made = ledger.history.get(tidy(reviewer))
            return made[-1].decision.id if made else 0

    def decided_items(self, reviewer: str, kind: str) -> set[str]:
        """Return the items about which this reviewer has a current decision."""
        return {item for item, d in self.decided(reviewer).items() if d.kind == kind}

    def close(self) -> None:
        self.writer.shutdown()
        self.reader.close()
        self.base.close()


def append(base: sqlite3.Connection, rows: Sequence[tuple]) -> None:
    """Append rows to a store, each as a decision of its own; see `numbered`."""
    last = base.execute("SELECT coalesce(max(id), 0) FROM decision").fetchone()[0]
    base.executemany(INSERT_SQL, [line for at, row in enumerate(rows) for line in numbered([row], last + at)])


def numbered(rows: Sequence[tuple], last: int) -> list[tuple]:
    """Return the rows of one request as values of INSERT_SQL: several decisions share a number in the column `bulk`.

    Args:
        rows: (reviewer, kind, item, choice, label, note, id of the decision that it undoes or None).
        last: id of the last row of the store.
    """
    bulk = last + 1 if len(rows) > 1 and rows[0][-1] is None else None
    return [
        (id, *(text.encode("utf-8", "surrogateescape") for text in texts), bulk, undoes)
        for id, (*texts, undoes) in enumerate(rows, last + 1)
    ]


def fingerprint(findings: Findings) -> str:
    """Return a hash of the samples and their labels: decisions are valid only for these."""
    samples, found = findings.sample, hashlib.sha256()
    labels = [b"\0" + name.encode("utf-8", "surrogateescape") for name in samples.label.names]
    for begin in range(0, len(samples), BLOCK_ROWS):
        some = np.arange(begin, min(begin + BLOCK_ROWS, len(samples)))
        columns = zip(samples.row[some].tolist(), samples.path.encoded(some), samples.label.code[some].tolist())
        named = b"\0".join([b"%d\0" % row + path + labels[code] for row, path, code in columns])
        found.update(b"\0" + named if begin else named)
    return found.hexdigest()


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


def find_current(ledger: Ledger, reviewer: str | None, item: str | None) -> list[Decision]:
    """Return the current decisions, of one reviewer or about one item if given, in order of time."""
    if item is not None:
        by = ledger.by_item.get(item, {})
        return sorted(d for name, d in by.items() if reviewer in (None, name))
    own = ledger.by_reviewer.values() if reviewer is None else [ledger.by_reviewer.get(reviewer, {})]
    return sorted(d for one in own for d in one.values())


def system_user() -> str:
    """Return the name of the account, which is the first reviewer's name until they change it; empty if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
