"""Send rows to another tool, and receive them from it into an audit or a file."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from likewise.core.files import check_output_path
from likewise.core.notebook import table, view
from likewise.core.settings import Receive, Send, check
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.read import UNSPLIT_NAME, Findings, read_findings
from likewise.curate.exchange import TOOL_BY_NAME
from likewise.curate.exchange.decisions import StoredDecisions, store_decisions
from likewise.curate.exchange.row_records import Records, check_free, vectors, write_labels, write_vectors
from likewise.data.dataset import load_items
from likewise.data.features import read_embeddings
from likewise.data.images import file_of
from likewise.data.label_sets import labels_by_class, split_labels
from likewise.data.shards import is_shards
from likewise.data.table import item_columns
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin, rows_in

EMBEDDING_SUFFIXES = (".npz", ".npy", ".safetensors")
AUDIT_FILE = "audit.json"


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
        source = Path(config.source).expanduser()
        if into.exists() and source.exists() and source.samefile(into):
            raise LikewiseError(f"receive: --into must not replace what is read, got '{source}'; choose another --into")
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


def read_target(config: Send) -> Records:
    """Return the rows of the target, the most suspect first if it is an audit, and at most `config.top` of them."""
    place, needs = Path(config.target).expanduser(), TOOL_BY_NAME[config.to].needs
    audit = next((one for one in (place, place / "audit") if (one / AUDIT_FILE).is_file()), None)
    file = place / EMBEDDINGS_FILE
    if file.is_file() and needs == "vectors" and not config.embeddings:
        records = of_embeddings(file, config)
        records = records if audit is None else with_audit(records, of_audit(audit, config.root))
    elif audit is not None:
        records = of_audit(audit, config.root)
    elif file.is_file():
        records = of_embeddings(file, config)
    elif (place / "config.json").is_file():
        raise LikewiseError(
            f"send: the run must have an audit or embeddings, got '{config.target}' with neither; run `likewise audit` or "
            "`likewise evaluate` first"
        )
    elif place.suffix.lower() in EMBEDDING_SUFFIXES or is_shards(place):
        records = of_embeddings(place, config)
    else:
        records = of_data(config)
    if config.embeddings:
        records = with_vectors(records, config)
    if config.similarity:
        records = replace(records, similarity=config.similarity)
    check_needs(records, config)
    return records if config.top is None else records.take(range(min(config.top, len(records))))


def of_audit(folder: Path, root: str | None) -> Records:
    """Return the samples of an audit folder, the most suspect first."""
    findings = read_findings(folder)
    base = os.path.abspath(os.path.expanduser(root)) if root else findings.about["root"]
    samples = by_suspicion(findings)
    columns: dict[str, list] = {
        "path": [os.path.join(base, one.path) if one.path else "" for one in samples],
        "label": [one.label for one in samples],
        "split": ["" if one.split == UNSPLIT_NAME else one.split for one in samples],
    }
    for name in ("score", "state", "suggested", "confidence", "reason"):
        columns[name] = [getattr(one, name) for one in samples]
    for name in samples[0].carried:
        columns.setdefault(name, [one.carried[name] for one in samples])
    if "labels" in findings.about:  # samples have several labels each
        columns["labels"] = [list(split_labels(one.label)) for one in samples]
    if not any(columns["path"]):
        columns.pop("path")
    return Records(np.asarray([one.row for one in samples], np.int64), columns, root=base)


def by_suspicion(findings: Findings) -> list:
    """Return all samples: exact copies with several labels, flagged samples, samples that fit no class, then by score."""
    first = [*findings.suspects, *findings.off_topic]
    known = {one.row for one in first}
    rest = (one for one in findings.sample.values() if one.row not in known)
    return [*first, *sorted(rest, key=lambda one: (1.0 if one.score is None else one.score, one.row))]


def of_embeddings(file: Path, config: Send) -> Records:
    """Return the rows of a file of embeddings, in the order of the file."""
    items = read_embeddings(str(file), config.labels, config.root)
    made_by = origin(file)
    records = of_items(items, rows_in(made_by, len(items)))
    return replace(records, similarity=made_by.get("similarity", "cosine"))


def of_data(config: Send) -> Records:
    """Return the rows of any DATA."""
    options = {"workers": 0, "quiet": True, "allow_imports": config.allow_imports}
    items = load_items(config.target, config.root, **options, say=lambda line: None)
    return of_items(items, np.arange(len(items)))


def of_items(items: Items, row: np.ndarray) -> Records:
    """Return items as records: labels by name, paths absolute, all columns as text."""
    columns: dict[str, list] = {name: [str(cell) for cell in cells] for name, cells in item_columns(items).items()}
    columns["label"] = columns.pop("class_name", None) or [items.class_name[c] for c in items.y]
    if (sets := labels_by_class(items)) is not None:
        columns["labels"] = [list(sets[c]) for c in items.y]
    if items.y_clean is not None:
        clean = columns.pop("class_name_clean", None) or [items.class_name[c] for c in items.y_clean]
        columns["label_clean"] = clean
        columns.pop("labels_clean", None)
    if items.path is not None:
        columns["path"] = [os.path.abspath(file_of(items, place)) for place in range(len(items))]
    x = None if items.x is None else vectors(items.x, len(items), "send")
    return Records(row, columns, x, root=os.path.abspath(items.root) if items.root else "")


def with_audit(records: Records, audit: Records) -> Records:
    """Return embeddings with the findings of an audit about their rows; rows that were not audited have empty cells."""
    place = {row: at for at, row in enumerate(audit.row.tolist())}
    at = [place.get(row) for row in records.row.tolist()]
    if "path" in records.columns and "path" in audit.columns:
        for mine, one in zip(records.columns["path"], at):
            if one is not None and os.path.basename(mine) != os.path.basename(audit.columns["path"][one]):
                raise LikewiseError(
                    f"send: the embeddings of a run must be of its audit's data, but row {audit.row[one]} is '{mine}' there and "
                    f"'{audit.columns['path'][one]}' in the audit; send the audit or the file of embeddings itself"
                )
    empty = {"score": None, "confidence": None}
    found = {
        name: [empty.get(name, "") if one is None else audit.columns[name][one] for one in at]
        for name in ("score", "state", "suggested", "confidence", "reason")
    }
    return replace(records, columns=records.columns | found)


def with_vectors(records: Records, config: Send) -> Records:
    """Return an audit with the vectors of a file of embeddings, matched by row."""
    assert config.embeddings is not None
    file = Path(config.embeddings).expanduser()
    found = of_embeddings(file, config)
    place = {row: at for at, row in enumerate(found.row.tolist())}
    missing = next((row for row in records.row.tolist() if row not in place), None)
    if missing is not None:
        raise LikewiseError(
            f"send: --embeddings must hold all {len(records)} rows of '{config.target}', but {file.name} has no row {missing}; "
            "embed the same data with `likewise embed`"
        )
    at = [place[row] for row in records.row.tolist()]
    for row, mine, theirs in zip(records.row.tolist(), records.columns["label"], found.take(at).columns["label"]):
        if mine != theirs:
            raise LikewiseError(
                f"send: --embeddings must be of the same data, but row {row} is {mine!r} in '{config.target}' and {theirs!r} "
                f"in {file.name}; embed the same data with `likewise embed`"
            )
    assert found.x is not None
    return replace(records, x=found.x[at], similarity=found.similarity)


def check_needs(records: Records, config: Send) -> None:
    """Raise if the rows lack what the tool needs."""
    needs = TOOL_BY_NAME[config.to].needs
    if needs == "vectors" and records.x is None:
        raise LikewiseError(
            f"send: {config.to} must get vectors, but '{config.target}' has none; give a run, a file of embeddings, or an audit "
            "with --embeddings z.npz"
        )
    if needs == "images" and not all(records.columns.get("path", ("",))):
        raise LikewiseError(
            f"send: {config.to} must get image files, but '{config.target}' has rows without a path; choose --to csv"
        )
    if needs == "vectors" and records.similarity == "cosine" and records.x is not None:
        length = np.linalg.norm(records.x.astype(np.float64), axis=1)
        if (worst := float(np.abs(length - 1).max())) > 1e-3:
            raise LikewiseError(
                f"send: vectors for the similarity cosine must have unit length, but one is off by {worst:.3g}; divide them by "
                "their length, or compare them by --similarity euclidean"
            )
