"""Write decisions that people made in another tool into the store of decisions of an audit: all of them, or none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from likewise.audit.read import Findings, find_audit, read_findings
from likewise.errors import LikewiseError
from likewise.exchange.records import Records
from likewise.web.review.store import Choice, Store, append, check, current_decisions, tidy


class Received(NamedTuple):
    """A decision of a person about a sample, with the fields of `store.Decision` that a tool knows."""

    reviewer: str
    item: str
    choice: str
    label: str
    note: str


def store_decisions(records: Records, audit: str, reviewer: str, owner: str) -> tuple[Path, int, int]:
    """Append the decisions in `records`; return the file, and the number of decisions and of new ones.

    All decisions are checked before the first one is written, and written in one transaction. A decision that is current
    already is not written again.

    Args:
        audit: an audit folder, or a run folder with an audit.
        reviewer: name for decisions of a tool that does not name its annotators.
    """
    folder = find_audit(audit, "receive")
    findings = read_findings(folder)
    made = choices(records, findings, reviewer, owner)
    if not made:
        raise LikewiseError(
            f"{owner}: the source must hold at least one decision or changed label, got none in {len(records)} rows; check "
            "that this is the export of the finished work"
        )
    file = folder / "decisions.sqlite"
    with closing(Store(file, findings)) as store, store.writing() as base:
        known = store.known_classes()
        for one in made:
            check(findings, Choice(one.item, one.choice, one.label), known, new_class=False)
        current = {(d.reviewer, d.item): (d.choice, d.label, d.note) for d in current_decisions(base)}
        new = [one for one in made if current.get((one.reviewer, one.item)) != (one.choice, one.label, one.note)]
        append(base, [(one.reviewer, "sample", one.item, one.choice, one.label, one.note, None) for one in new])
    return file, len(made), len(new)


def choices(records: Records, findings: Findings, reviewer: str, owner: str) -> list[Received]:
    """Return the decisions about the samples of an audit.

    Without a column `choice`, a label that differs from the audit's is a decision to relabel, and other rows are none.
    """
    found = []
    for line in records.lines():
        row, sample = line["row"], findings.sample.get(line["row"])
        if sample is None:
            raise LikewiseError(
                f"{owner}: every row must be in the audit, but row {row} is not; receive into the audit that was sent"
            )
        path = line.get("path", "")
        if path and sample.path and not path.replace("\\", "/").endswith(sample.path.replace("\\", "/")):
            raise LikewiseError(
                f"{owner}: row {row} must be the image of the audit, {sample.path!r}, got {path!r}; receive into the audit "
                "that was sent"
            )
        who = tidy(line.get("reviewer", "")) or tidy(reviewer) or owner
        if "choice" not in records.columns:
            if line.get("label", sample.label) != sample.label:
                found.append(Received(who, str(row), "relabel", line["label"], ""))
            continue
        if line.get("label", sample.label) != sample.label:
            raise LikewiseError(
                f"{owner}: row {row} must have the label of the audit, {sample.label!r}, got {line['label']!r}; receive into "
                "the audit that was sent"
            )
        if line["choice"]:
            label = line.get("new_label", "") if line["choice"] == "relabel" else ""
            found.append(Received(who, str(row), line["choice"], label, tidy(line.get("note", ""))))
    return found
