"""Read what is sent: an audit, a run, a file of embeddings, or data, as records."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.core.settings import Send
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.read import UNSPLIT_NAME, Findings, in_order, read_findings
from likewise.curate.exchange import TOOL_BY_NAME
from likewise.curate.exchange.records import Records, vectors
from likewise.data.dataset import load_items
from likewise.data.features import read_embeddings
from likewise.data.images import file_of
from likewise.data.label_sets import labels_by_class, split_labels
from likewise.data.table import item_columns
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin, rows_in

EMBEDDING_SUFFIXES = (".npz", ".npy", ".safetensors")
AUDIT_FILE = "audit.json"


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
    elif place.suffix.lower() in EMBEDDING_SUFFIXES:
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
    first = [*in_order(findings.suspects), *findings.off_topic]
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
