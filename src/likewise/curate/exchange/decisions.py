"""Write decisions that people made in another tool into the store of decisions of an audit: all of them, or none."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from likewise.core.errors import LikewiseError
from likewise.curate.audit.read import Findings, find_audit, read_findings
from likewise.curate.exchange.row_records import CHOICE_NAMES, Records
from likewise.curate.review.store import Choice, Store, append, check, tidy

SENT_AUDIT_ADVICE = "receive into the audit that was sent"
"""What to do about rows that do not fit the audit."""


class Received(NamedTuple):
    """A decision of a person about a sample, with the fields of `store.Decision` that a tool knows."""

    reviewer: str
    item: str
    choice: str
    label: str
    note: str


class StoredDecisions(NamedTuple):
    """The store of the received decisions: how many there are, are new, and replace others of the same reviewer."""

    file: Path
    made: int
    new: int
    replaced: int


def store_decisions(records: Records, audit: str, reviewer: str, owner: str) -> StoredDecisions:
    """Append the decisions in `records` to the store of an audit.

    All decisions are checked before the first one is written, and written in one transaction. A decision that is current
    already is not written again. Earlier decisions stay in the store; one of the same reviewer about the same row is no
    longer the current one.

    Args:
        audit: an audit folder, or a run folder with an audit.
        reviewer: name for decisions of a tool that does not name its annotators.
    """
    folder = find_audit(audit, "receive")
    findings = read_findings(folder)
    if findings.questions is not None:
        raise LikewiseError(
            f"{owner}: decisions must be about an audit of samples with one label, got one of samples with several; decide "
            "about them in `likewise review`, or receive a table: --into labels.csv"
        )
    made = choices(records, findings, reviewer, owner)
    if not made:
        raise LikewiseError(
            f"{owner}: the source must hold at least one decision or changed label, got none in {len(records)} rows; check "
            "that this is the export of the finished work"
        )
    file = folder / "decisions.sqlite"
    if not file.exists():  # decisions that are refused leave no store
        checked(made, findings, {label for _, label in findings.members}, owner)
    with closing(Store(file, findings)) as store:
        current = {(d.reviewer, d.item): (d.choice, d.label, d.note) for d in store.current_decisions()}
        with store.writing() as base:
            made = checked(made, findings, store.known_classes(), owner)
            new = [one for one in made if current.get((one.reviewer, one.item)) != (one.choice, one.label, one.note)]
            append(base, [(one.reviewer, "sample", one.item, one.choice, one.label, one.note, None) for one in new])
    return StoredDecisions(file, len(made), len(new), sum((one.reviewer, one.item) in current for one in new))


def checked(made: list[Received], findings: Findings, known: Collection[str], owner: str) -> list[Received]:
    """Return the decisions with tidy labels; raise if a reviewer could not make one of them."""
    found = []
    for one in made:
        if one.choice == "relabel" and one.label not in known and tidy(one.label) not in known:
            raise LikewiseError(
                f"{owner}: a new label must be a class of this audit, got {one.label!r} for row {one.item}; choose one of its "
                "classes, or add the class in `likewise review` first"
            )
        _, choice = check(findings, Choice(one.item, one.choice, one.label), known, new_class=False)
        found.append(one._replace(label=choice.label))
    return found


def choices(records: Records, findings: Findings, reviewer: str, owner: str) -> list[Received]:
    """Return the decisions about the samples of an audit, one per reviewer and row.

    Without a column `choice`, a label that differs from the audit's is a decision to relabel, and other rows are none.
    """
    has_choice = "choice" in records.columns
    if "new_label" in records.columns and not has_choice:
        raise LikewiseError(
            f"{owner}: a column new_label must come with a column choice ({', '.join(CHOICE_NAMES)}), got none; add it, or write "
            "the new labels into the column label"
        )
    found: list[Received] = []
    seen: set[tuple[str, int]] = set()
    for row, line in zip(match_rows(records, findings, owner), records.lines()):
        given = findings.sample[row].label
        label, new_label = line.get("label", given), line.get("new_label", "")
        for name in ("label_before", *(("label",) if has_choice else ())):
            if line.get(name, given) != given:
                raise LikewiseError(
                    f"{owner}: row {row} must have the label of the audit, {given!r}, got {line[name]!r} as its {name}; "
                    + SENT_AUDIT_ADVICE
                )
        choice = line["choice"] if has_choice else "relabel" if label != given else ""
        if not choice and new_label:
            raise LikewiseError(
                f"{owner}: row {row} must have a choice beside its new_label {new_label!r}, got none; write relabel into choice"
            )
        who = tidy(line.get("reviewer", "")) or tidy(reviewer) or owner
        if (who, row) in seen:
            raise LikewiseError(
                f"{owner}: a reviewer must have one line about a row, but {who!r} has two about row {row}; remove one of them"
            )
        seen.add((who, row))
        if not choice:
            continue
        target = (new_label if has_choice else label) if choice == "relabel" else ""
        found.append(Received(who, str(row), choice, target, tidy(line.get("note", ""))))
    return found


def match_rows(records: Records, findings: Findings, owner: str) -> list[int]:
    """Return the row of the audit of every record: its `row`, which a path must confirm if there is one; or that of its `path`.

    A position in the source identifies nothing: a table that was sorted or shortened would give decisions about other images.
    """
    if records.is_numbered and "path" not in records.columns:
        raise LikewiseError(
            f"{owner}: every row must be identified by a column row or path, got the columns {', '.join(records.columns)}; add "
            "the row of the audit (lines are not matched by their order)"
        )
    rows_of = rows_by_path(findings)
    paths = records.columns.get("path") or [""] * len(records)
    match = row_of_path if records.is_numbered else checked_row
    return [match(row, path, rows_of, findings, owner) for row, path in zip(records.row.tolist(), paths)]


def row_of_path(at: int, path: str, rows_of: dict[str, list[int]], findings: Findings, owner: str) -> int:
    """Return the only row of a path, which is relative to the folder of the images, or below it."""
    rows = rows_of.get(clean_path(path), ())
    if len(rows) != 1:
        problem = f"is {len(rows)} of its rows; add the column row" if rows else f"is none; {SENT_AUDIT_ADVICE}"
        raise LikewiseError(
            f"{owner}: every path must be one image of the audit, relative to {findings.about['root']!r} or below it, but "
            f"{path!r} of line {at + 1} {problem}"
        )
    return rows[0]


def checked_row(row: int, path: str, rows_of: dict[str, list[int]], findings: Findings, owner: str) -> int:
    """Return a row; raise if the audit does not have it, or has another image there. Folders above the image may differ."""
    sample = findings.sample.get(row)
    if sample is None:
        raise LikewiseError(f"{owner}: every row must be in the audit, but row {row} is not; {SENT_AUDIT_ADVICE}")
    if path and sample.path:
        whole, own = clean_path(path), re.sub(r"^(\.\./|/)+", "", clean_path(sample.path))
        rows = rows_of.get(whole)
        if row not in rows if rows else not f"/{whole}".endswith(f"/{own}"):
            raise LikewiseError(
                f"{owner}: row {row} must be the image of the audit, {sample.path!r}, got {path!r}; {SENT_AUDIT_ADVICE}"
            )
    return row


def rows_by_path(findings: Findings) -> dict[str, list[int]]:
    """Return path -> rows, with every path as the audit has it and below the folder of the images."""
    found = defaultdict(list)
    for one in findings.sample.values():
        if one.path:
            for path in {clean_path(one.path), clean_path(os.path.join(findings.about["root"], one.path))}:
                found[path].append(one.row)
    return dict(found)


def clean_path(path: str) -> str:
    """Return a path with "/" between its parts, and without empty parts and dots."""
    return posixpath.normpath(path.replace("\\", "/")) if path else ""
