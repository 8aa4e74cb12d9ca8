"""Results of a review: what the decisions come to, and tables of the changes."""

from __future__ import annotations

import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, write_csv_lines
from likewise.curate.audit.read import Findings
from likewise.curate.review.agreement import Consensus, find_consensus
from likewise.curate.review.reviewer_votes import settle_decisions
from likewise.curate.review.store import Decision, Store
from likewise.data.label_sets import LABEL_SEPARATOR

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of texts that a spreadsheet runs as a formula."""


def settle_copies(findings: Findings, settled: dict[str, Consensus]) -> dict[str, Consensus]:
    """Return the decisions with those about exact copies added: a label that people chose for an image holds for its copies.

    It holds for copies with another label that have no decision, unless people chose different labels for the image.
    A removal concerns one row: people may remove a copy because it is one.
    """
    added = {}
    for rows in findings.same_images.values():
        made = {row: settled[str(row)] for row in rows if str(row) in settled}
        labelled = {row: one for row, one in made.items() if one.choice in ("keep", "relabel")}
        label_of = {row: one.label or findings.sample[row].label for row, one in labelled.items()}
        if len(set(label_of.values())) != 1:
            continue
        row, label = next(iter(label_of.items()))
        others = (other for other in rows if other not in made and findings.sample[other].label != label)
        added |= {str(other): Consensus("relabel", label, made[row].by) for other in others}
    return settled | added


def corrected(findings: Findings, decisions: Iterable[Decision], root: str = "") -> list[tuple]:
    """Return the data's table with all changes: removed rows are gone, relabelled rows have the new label.

    Without images it is a table of labels for embeddings (`--labels`), one line per embedding: removed rows and rows that were
    not audited are marked in the column `junk`, which excludes them from all splits.
    """
    if findings.questions is not None:
        return corrected_sets(findings, decisions, root)
    settled, samples = settle_copies(findings, settle_decisions(findings, decisions)), findings.sample
    names = carried_names(findings)
    if any(s.path for s in samples.values()):
        table: list[tuple] = [("path", "label", *names, "row")]
        for s in samples.values():
            choice, label, _ = settled.get(str(s.row), ("keep", "", ()))
            if choice != "remove":
                table.append((os.path.join(root, s.path), label or s.label, *(s.carried[n] for n in names), s.row))
        return table
    table = [("label", *names, "junk", "row")]
    for row in range(findings.about["rows"]):
        s, (choice, label, _) = samples.get(row), settled.get(str(row), ("keep", "", ()))
        carried = [s.carried[n] if s else "0" if n == "weight" else "" for n in names]
        table.append((label or (s.label if s else "not audited"), *carried, int(s is None or choice == "remove"), row))
    return table


def corrected_sets(findings: Findings, decisions: Iterable[Decision], root: str = "") -> list[tuple]:
    """Return the data's table with the corrected labels of every sample, as "dress|red" in the column `labels`.

    A sample without any label left is gone; without images, it is marked in the column `junk` and keeps its labels.
    """
    names, change = carried_names(findings), defaultdict(dict)
    for item, one in find_consensus(d for d in decisions if d.kind == "label").items():
        question = (findings.questions or {})[item]
        change[question.row][question.label] = one.choice
    labels = {}
    for s in findings.sample.values():
        made = change.get(s.row, {})
        kept = [label for label in s.label.split(LABEL_SEPARATOR) if made.get(label) != "remove"]
        labels[s.row] = LABEL_SEPARATOR.join(
            sorted({*kept, *(label for label, choice in made.items() if choice == "add")})
        )
    if any(s.path for s in findings.sample.values()):
        lines = (
            (os.path.join(root, s.path), labels[s.row], *(s.carried[n] for n in names), s.row)
            for s in findings.sample.values() if labels[s.row]
        )  # fmt: skip
        return [("path", "labels", *names, "row"), *lines]
    table: list[tuple] = [("labels", *names, "junk", "row")]
    for row in range(findings.about["rows"]):
        s = findings.sample.get(row)
        carried = [s.carried[n] if s else "0" if n == "weight" else "" for n in names]
        text = (labels[row] or s.label) if s else "not audited"
        table.append((text, *carried, int(s is None or not labels[row]), row))
    return table


def carried_names(findings: Findings) -> list[str]:
    """Return the columns that the corrected table copies from the data: those with a value, and `split` if the data has its own.

    A split that a protocol chose is not written: training on the table chooses it again, by the corrected labels.
    """
    samples = findings.sample.values()
    names = [name for name in next(iter(samples)).carried if any(s.carried[name] for s in samples)]
    return [name for name in names if name != "split" or findings.about.get("own_split", True)]


class Outcome(NamedTuple):
    """Number of samples by decision, and the estimated number of wrong labels among the samples without a decision."""

    changed: int
    removed: int
    kept: int
    unsure: int
    disputed: int
    left: float


def outcome(findings: Findings, decisions: Iterable[Decision]) -> Outcome:
    """Return what the decisions of all reviewers come to; copies that `settle_copies` relabels count as changed.

    Formula: left = sum of (1 - score) over the samples that are neither kept, changed nor removed
    """
    if findings.questions is not None:
        return label_outcome(findings, decisions)
    decisions = [d for d in decisions if d.kind == "sample"]
    settled = settle_copies(findings, settle_decisions(findings, decisions))
    count = Counter(one.choice for one in settled.values())
    unsure = {d.item for d in decisions} - settled.keys()
    done = {item for item, one in settled.items() if one.choice != "disputed"}
    left = (1 - s.score for s in findings.sample.values() if s.score is not None and str(s.row) not in done)
    return Outcome(count["relabel"], count["remove"], count["keep"], len(unsure), count["disputed"], sum(left))


def label_outcome(findings: Findings, decisions: Iterable[Decision]) -> Outcome:
    """Return what the decisions about single labels come to: `changed` are labels that were added, `removed` those removed.

    Formula: left = estimated number of wrong states, minus the probabilities of those that are decided
    """
    decisions = [d for d in decisions if d.kind == "label"]
    settled = find_consensus(decisions)
    count = Counter(one.choice for one in settled.values())
    unsure = {d.item for d in decisions} - settled.keys()
    done = sum(
        (findings.questions or {})[item].chance or 0.0 for item, one in settled.items() if one.choice != "disputed"
    )
    left = max(0.0, findings.about.get("expected_wrong", 0.0) - done)
    return Outcome(count["add"], count["remove"], count["keep"], len(unsure), count["disputed"], left)


def label_changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every label of a sample that is added, removed or disputed."""
    table: list[tuple] = [("row", "path", "labels", "label", "change", "reviewers", "notes")]
    settled = find_consensus(d for d in decisions if d.kind == "label")
    for item, (choice, _, by) in sorted(settled.items(), key=lambda one: (findings.questions or {})[one[0]][:2]):
        if choice != "keep":
            s, label = findings.sample[(findings.questions or {})[item].row], (findings.questions or {})[item].label
            who = "; ".join(f"{d.reviewer}: {d.choice}" for d in by)
            table.append((s.row, s.path, s.label, label, choice, who, "; ".join(d.note for d in by if d.note)))
    return table


def changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every sample that is removed, relabelled or disputed."""
    if findings.questions is not None:
        return label_changes(findings, decisions)
    table: list[tuple] = [("row", "path", "label", "change", "new_label", "reviewers", "notes")]
    settled = settle_copies(findings, settle_decisions(findings, (d for d in decisions if d.kind == "sample")))
    for item, (choice, label, by) in sorted(settled.items(), key=lambda one: int(one[0])):
        if choice != "keep":
            said = (f"{d.reviewer}: {d.choice} {d.label}".strip() + copy_of(d, item) for d in by)
            s, who = findings.sample[int(item)], "; ".join(said)
            table.append((s.row, s.path, s.label, choice, label, who, "; ".join(d.note for d in by if d.note)))
    return table


def copy_of(decision: Decision, item: str) -> str:
    """Return a remark if a decision was made about an exact copy of an item."""
    return "" if decision.item == item else f" (row {decision.item}, the same image)"


def as_csv(table: Iterable[Iterable]) -> str:
    """Return a table as CSV with unchanged values, for programs."""
    out = io.StringIO()
    write_csv_lines(out, table)
    return out.getvalue()


def escape_formulas(table: Iterable[Iterable]) -> Iterator[list]:
    """Yield the lines of a table; an apostrophe precedes texts that a spreadsheet would run as formulas.

    `corrected` is not escaped: a class may be called "-", and training must read exactly that label.
    """
    for line in table:
        yield [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell for cell in line]


def write_corrected_table(store: Store, file: Path, root: str) -> Path | None:
    """Write the data's table with all changes and return its path; None, and nothing is written, without decisions."""
    made = store.current_decisions()
    if not made:
        return None
    try:
        with atomic_write(file) as aside:
            aside.write_text(as_csv(corrected(store.findings, made, root)), "utf-8", "surrogateescape")
    except OSError as error:
        raise LikewiseError(
            f"review: {file} cannot be written ({error.strerror}); all decisions are in {store.file}: make the folder "
            "writable, and finish again"
        ) from None
    return file
