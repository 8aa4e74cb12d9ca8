"""Send records to a tool, and receive them from it into an audit or a file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from likewise.core.files import check_output_path
from likewise.core.notebook import table, view
from likewise.core.settings import Receive, Send, check
from likewise.core.types import LikewiseError
from likewise.curate.exchange import TOOL_BY_NAME
from likewise.curate.exchange.decisions import StoredDecisions, store_decisions
from likewise.curate.exchange.places import check_free
from likewise.curate.exchange.records import Records, write_labels, write_vectors
from likewise.curate.exchange.target import read_target


@dataclass(frozen=True)
class Sent:
    """What was sent: number of rows, tool, place, and what to do next."""

    rows: int
    tool: str
    place: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rows} rows sent to {self.tool}: {self.place}", *self.notes])

    @view
    def _repr_html_(self) -> str:
        return table("sent", (), [("rows", self.rows), ("tool", self.tool), ("place", self.place)], self.notes)


@dataclass(frozen=True)
class Received:
    """What was received: what it is, the number of rows, the tool, and where it is stored."""

    rows: int
    tool: str
    kind: str  # "decisions", "embeddings" or "labels"
    file: Path
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rows} {self.kind} received from {self.tool}: {self.file}", *self.notes])

    @view
    def _repr_html_(self) -> str:
        return table("received", (), [(self.kind, self.rows), ("tool", self.tool), ("file", self.file)], self.notes)


def send(config: Send, say=print) -> Sent:
    """Read the target and send its rows to the tool."""
    check(config)
    check_columns(config.columns, config.to, "send")
    with translating_errors("send", config.out):
        records = read_target(config)
        notes = module_of(config.to).send(records, config)
    return Sent(len(records), config.to, config.out, tuple(notes))


def receive(config: Receive, say=print) -> Received:
    """Read the rows of the tool; store decisions in an audit, vectors in a .npz file, labels in a .csv file."""
    check(config)
    tool, suffix = config.from_, Path(config.into).suffix.lower()
    check_columns(config.columns, tool, "receive")
    into = check_output_path(config.into, suffix, "receive", "--into") if suffix in (".npz", ".csv") else None
    if into is not None:
        check_free([into], "receive", config.replace)
        check_other(into, config)
    elif not Path(config.into).expanduser().is_dir():
        raise LikewiseError(
            f"receive: --into must be an audit folder, a .npz file for vectors or a .csv file for labels, got '{config.into}'"
        )
    with translating_errors("receive", config.source):
        records = module_of(tool).receive(config)
    with translating_errors("receive", config.into):
        return store(records, into, config)


def store(records: Records, into: Path | None, config: Receive) -> Received:
    """Write records into an audit (`into` is None), a table of labels, or a file of vectors."""
    tool = config.from_
    if into is None:
        stored = store_decisions(records, config.into, config.reviewer or "", tool)
        return Received(stored.made, tool, "decisions", stored.file, tuple(notes_about(stored)))
    if into.suffix.lower() == ".csv":
        return Received(write_labels(records, into, tool), tool, "labels", into)
    if records.x is None:
        raise LikewiseError(
            f"receive: a .npz file must get vectors, but {tool} returned none; choose --into labels.csv"
        )
    write_vectors(records, into)
    return Received(len(records), tool, "embeddings", into)


@contextmanager
def translating_errors(owner: str, place: str) -> Iterator[None]:
    """Turn errors of the operating system into LikewiseErrors."""
    try:
        yield
    except OSError as error:
        raise LikewiseError(
            f"{owner}: '{place}' must be readable and writable, but it is not ({error}); check its permissions and its disk"
        ) from None


def check_other(into: Path, config: Receive) -> None:
    """Raise if the file that is written is one that is read."""
    source = Path(config.source).expanduser()
    for file in (source, *([source.with_suffix(".csv")] if config.from_ == "faiss" else [])):
        if into.exists() and file.exists() and file.samefile(into):
            raise LikewiseError(f"receive: --into must not replace what is read, got '{file}'; choose another --into")


def notes_about(stored: StoredDecisions) -> Iterator[str]:
    """Yield what the number of received decisions does not show."""
    if stored.new < stored.made:
        yield f"{stored.made - stored.new} of them were stored already"
    if stored.replaced:
        yield (
            f"{stored.replaced} of them replace another decision of the same reviewer, which stays in the store and is current "
            "again after an undo"
        )


def module_of(tool: str):
    """Return the module of a tool."""
    return importlib.import_module(f"likewise.curate.exchange.{TOOL_BY_NAME[tool].module}")


def check_columns(words: tuple[str, ...], tool: str, owner: str) -> None:
    """Raise if columns are renamed for a tool whose format has fixed names."""
    if words and tool != "csv":
        raise LikewiseError(
            f"{owner}: --columns must be used with csv, got {tool}, whose column names are fixed; leave it out"
        )
