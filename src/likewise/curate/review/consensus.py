"""Consensus of the reviewers: the decision of all about an item, their agreement, and tables of what the decisions change.

Two reviewers must agree. From three on, their decisions are votes, weighed by a model of the reviewers.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import escape

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, open_csv, write_csv_lines, write_text
from likewise.core.types import Votes
from likewise.curate.audit.read import FEATURES_FILE, Findings
from likewise.curate.review.items import Questioned
from likewise.curate.review.store import Decision, Store
from likewise.data.label_sets import LABEL_SEPARATOR
from likewise.runs.embeddings import write_arrays

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of texts that a spreadsheet runs as a formula."""

MIN_MODELLED_REVIEWERS = 3
"""Number of reviewers of an item from which votes decide; with two, they must agree."""

REMOVED_CLASS = "\0remove"
"""Name of the class of samples that reviewers remove: no label of the data has it."""

MAX_FEATURES_BYTES = 2**31
"""Largest file of features that is written again with corrected labels."""

REVIEWED_LINE = re.compile(r'<p id="reviewed".*?</p>')
"""The line of audit.html about the review; see `note_review`."""


class Consensus(NamedTuple):
    """The common decision of all reviewers about an item, and their decisions."""

    choice: str
    label: str
    by: list[Decision]


def agreement(decisions: Iterable[Decision]) -> list[tuple[str, str, str, int, float]]:
    """Return Cohen's kappa for every kind and two reviewers: (kind, one, other, items of both, kappa); NaN if undefined.

    Formula: (p - q) / (1 - q), p the share of equal decisions, q the share expected of two independent reviewers.
    """
    by_key = defaultdict(dict)
    for d in decisions:
        by_key[d.kind, d.reviewer][d.item] = (d.choice, d.label)
    found = []
    for (kind, one), (same, other) in itertools.combinations(sorted(by_key), 2):
        both = sorted(by_key[kind, one].keys() & by_key[same, other].keys()) if kind == same else []
        if both:
            mine, theirs = ([by_key[kind, name][item] for item in both] for name in (one, other))
            p = sum(map(operator.eq, mine, theirs)) / len(both)
            count, again = Counter(mine), Counter(theirs)
            q = sum(count[v] * again[v] for v in count) / len(both) ** 2
            found.append((kind, one, other, len(both), (p - q) / (1 - q) if q < 1 else math.nan))
    return found


def find_consensus(decisions: Iterable[Decision]) -> dict[str, Consensus]:
    """Return the consensus of every item.

    "unsure" decisions are ignored. If the other decisions differ, the item is "disputed", and it stays unchanged until they
    agree; see `settle` for three reviewers or more.
    """
    by_key = defaultdict(list)
    for d in decisions:
        if d.choice != "unsure":
            by_key[d.item].append(d)
    found = {}
    for item, by in by_key.items():
        views = {(d.choice, d.label) for d in by}
        found[item] = Consensus(*(views.pop() if len(views) == 1 else ("disputed", "")), by)
    return found


def settle(findings: Findings, decisions: Iterable[Decision]) -> dict[str, Consensus]:
    """Return the consensus of every item, "disputed" where there is none, with the exact copies that it relabels.

    Reviewers who agree settle an item. If they differ about a sample and are three or more, the choice of more than half of them
    counts, unless the model of the reviewers prefers another or does not decide: it weighs reviewers by their agreement with the
    others on all samples.
    """
    made = list(decisions)
    settled = find_consensus(made)
    open_items = {
        item: chosen
        for item, one in settled.items()
        if one.choice == "disputed" and (chosen := majority(findings, one.by)) is not None
    }
    if open_items:
        likely = likely_labels(findings, made, set(open_items))
        for item, label in open_items.items():
            if likely.get(item) == label:
                settled[item] = as_decision(findings, item, label, settled[item].by)
    return settle_copies(findings, settled)


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


def majority(findings: Findings, by: list[Decision]) -> str | None:
    """Return the label that more than half of the reviewers of a sample choose; None for fewer than three, or for other items."""
    if len(by) < MIN_MODELLED_REVIEWERS or by[0].kind != "sample":
        return None
    label, count = Counter(chosen_label(findings, d) for d in by).most_common(1)[0]
    return label if 2 * count > len(by) else None


def chosen_label(findings: Findings, decision: Decision) -> str:
    """Return the label that a decision about a sample means: keeping is the given label, and removing is a class of its own."""
    if decision.choice == "remove":
        return REMOVED_CLASS
    return decision.label or findings.sample[int(decision.item)].label


def as_decision(findings: Findings, item: str, label: str, by: list[Decision]) -> Consensus:
    """Return the decision that a label means."""
    if label == REMOVED_CLASS:
        return Consensus("remove", "", by)
    keeps = label == findings.sample[int(item)].label
    return Consensus("keep", "", by) if keeps else Consensus("relabel", label, by)


def votes_of_decisions(findings: Findings, decisions: Iterable[Decision]) -> tuple[Votes, list[str], list[str]]:
    """Return the decisions about samples as votes, the reviewed items, and the names of the classes; "unsure" is no vote."""
    made = [d for d in decisions if d.kind == "sample" and d.choice != "unsure"]
    chosen = [chosen_label(findings, d) for d in made]
    items, names = sorted({d.item for d in made}, key=int), sorted({*chosen})
    reviewers = sorted({d.reviewer for d in made})
    place, number, worker = ({name: at for at, name in enumerate(all_names)} for all_names in (items, names, reviewers))
    columns = ([place[d.item] for d in made], [worker[d.reviewer] for d in made], [number[label] for label in chosen])
    row, who, label = (np.array(column, np.int64) for column in columns)
    return Votes(row, who, label, tuple(reviewers)), items, names


def likely_labels(findings: Findings, decisions: Iterable[Decision], wanted: set[str]) -> dict[str, str]:
    """Return item -> label by the model of the reviewers, fitted with all decisions; without undecided items."""
    import torch

    from likewise.labels.annotators import fit_workers
    from likewise.labels.ballots import ballots_of

    votes, items, names = votes_of_decisions(findings, decisions)
    ballots = ballots_of(votes, len(items), len(names))
    with torch.no_grad():
        _, q, _ = fit_workers(ballots)
        decided = ballots.decided(q)
    return {
        item: names[int(decided.label[at])]
        for at, item in enumerate(items)
        if item in wanted and not bool(decided.undecided[at])
    }


def corrected(findings: Findings, decisions: Iterable[Decision], root: str = "") -> list[tuple]:
    """Return the data's table with all changes: removed rows are gone, relabelled rows have the new label.

    If the data is a table of the user, all its columns are there; see `corrected_own`.
    Without images it is a table of labels for embeddings (`--labels`), one line per embedding: removed rows and rows that were
    not audited are marked in the column `junk`, which excludes them from all splits. Samples with several labels have them as
    "dress|red" in the column `labels`.
    """
    label_of, samples, names = new_labels(findings, decisions), findings.sample, carried_names(findings)
    if findings.own is not None:
        return corrected_own(findings, findings.own, label_of, root)
    head = "label" if findings.questions is None else "labels"
    if findings.sample.has_paths:
        lines = (
            (os.path.join(root, s.path), label, *(s.carried[n] for n in names), s.row)
            for s in samples.values()
            if (label := label_of[s.row]) is not None
        )
        return [("path", head, *names, "row"), *lines]
    table: list[tuple] = [(head, *names, "junk", "row")]
    for row in range(findings.about["rows"]):
        s, label = samples.get(row), label_of.get(row)
        carried = [s.carried[n] if s else "0" if n == "weight" else "" for n in names]
        table.append((label or (s.label if s else "not audited"), *carried, int(label is None), row))
    return table


def corrected_own(findings: Findings, file: Path, label_of: dict[int, str | None], root: str) -> list[tuple]:
    """Return the user's table with all its columns, and its rows in their order; only what the decisions change differs.

    A relabelled row gets the label of its new class as the table writes it (such as its number), its class_name and its coarse.
    Rows that were not audited stay. Paths start from `root`; the column `row` is added unless the table has one.

    Args:
        file: the columns of the table, one line per row.
        label_of: row -> class after all changes; None: the row is removed.
    """
    with open_csv(file) as lines:
        head, *table = csv.reader(lines)
    if len(table) != findings.about["rows"]:
        raise LikewiseError(
            f"review: {file} must have {findings.about['rows']} rows like the audit, got {len(table)}; audit again"
        )
    at = {name: place for place, name in enumerate(head)}
    word = at["label" if "label" in at and findings.questions is None else "labels"]
    given = dict(zip(findings.sample.row.tolist(), findings.sample.label.cells(), strict=True))
    example = {given[row]: table[row] for row in sorted(given, reverse=True)}  # class -> its first audited row
    for row, cells in enumerate(table):
        if row not in given:
            name = cells[at["class_name"]].strip() if "class_name" in at else ""
            example.setdefault(name or cells[word].strip(), cells)
    used, added = {cells[word].strip() for cells in table}, "row" not in at
    found: list[tuple] = [(*head, "row") if added else tuple(head)]
    for row, cells in enumerate(table):
        new, cells = label_of.get(row) if row in given else "", list(cells)
        if new is None:
            continue
        cells[at["path"]] = os.path.join(root, cells[at["path"]])
        if row in given and new != given[row]:
            other = example.get(new)
            cells[word] = other[word] if other else unused_word(new, used)
            if "class_name" in at:
                cells[at["class_name"]] = other[at["class_name"]] if other else new
            if "coarse" in at:
                cells[at["coarse"]] = other[at["coarse"]] if other else ""
        found.append((*cells, row) if added else tuple(cells))
    return found


def unused_word(name: str, used: Collection[str]) -> str:
    """Return the label of a new class: its name, with a mark if the table uses this word for another class."""
    while name in used:
        name += "'"
    return name


def new_labels(findings: Findings, decisions: Iterable[Decision]) -> dict[int, str | None]:
    """Return the label of every sample after all changes; None if it is removed, or has no label left."""
    samples = findings.sample.values()
    if findings.questions is None:
        settled = settle(findings, decisions)
        made = {s.row: settled.get(str(s.row), Consensus("keep", "", [])) for s in samples}
        return {s.row: None if made[s.row].choice == "remove" else made[s.row].label or s.label for s in samples}
    change: dict[int, dict[str, str]] = defaultdict(dict)
    for item, one in find_consensus(d for d in decisions if d.kind == "label").items():
        question = findings.questions[item]
        change[question.row][question.label] = one.choice
    found = {}
    for s in samples:
        made = change.get(s.row, {})
        kept = [label for label in s.label.split(LABEL_SEPARATOR) if made.get(label) != "remove"]
        added = [label for label, choice in made.items() if choice == "add"]
        found[s.row] = LABEL_SEPARATOR.join(sorted({*kept, *added})) or None
    return found


def carried_names(findings: Findings) -> list[str]:
    """Return the columns that the corrected table copies from the data: those with a value, and `split` if the data has its own.

    A split that a protocol chose is not written: training on the table chooses it again, by the corrected labels.
    """
    names = [name for name, column in findings.sample.carried.items() if any(column.names)]
    return [name for name in names if name != "split" or findings.about.get("own_split", True)]


class Outcome(NamedTuple):
    """Number of samples by decision, and the estimated number of wrong labels among the samples without a decision.

    If samples have several labels, `changed` are the labels that were added, and `removed` those that were removed.
    """

    changed: int
    removed: int
    kept: int
    unsure: int
    disputed: int
    left: float


def outcome(findings: Findings, decisions: Iterable[Decision]) -> Outcome:
    """Return what the decisions of all reviewers come to; copies that `settle_copies` relabels count as changed.

    Copies with different labels are one question and count once, by the first that holds for one of them: disputed, changed,
    removed, kept.
    Formula: left = sum of (1 - score) over the samples that are neither kept, changed nor removed; if samples have several
        labels, the estimated number of wrong states, minus the probabilities of those that are decided
    """
    questions = findings.questions
    made = [d for d in decisions if d.kind == ("sample" if questions is None else "label")]
    settled = settle(findings, made)
    choice: dict[str, str] = {}
    for name in ("keep", "remove", "add", "relabel", "disputed"):
        choice |= {findings.question_of(item): name for item, one in settled.items() if one.choice == name}
    count = Counter(choice.values())
    unsure = {findings.question_of(d.item) for d in made} - choice.keys()
    done = dict.fromkeys(item for item, one in settled.items() if one.choice != "disputed")
    if questions is None:
        samples = findings.sample
        decided = samples.places(np.array([int(item) for item in done], np.int64))
        open_score = np.delete(samples.score, decided[decided >= 0])
        left = float(np.nansum(1 - open_score))
    else:
        left = max(0.0, findings.about.get("expected_wrong", 0.0) - sum(questions[item].chance or 0.0 for item in done))
    changed = count["relabel"] + count["add"]
    return Outcome(changed, count["remove"], count["keep"], len(unsure), count["disputed"], left)


def answers(findings: Findings, decisions: Iterable[Decision]) -> set[tuple[str, str]]:
    """Return the (reviewer, question) that are decided: copies with different labels are one question."""
    return {(one.reviewer, findings.question_of(one.item)) for one in decisions}


def changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every sample that is removed, relabelled or disputed."""
    if findings.questions is not None:
        return label_changes(findings, decisions)
    table: list[tuple] = [("row", "path", "label", "change", "new_label", "reviewers", "notes")]
    settled = settle(findings, (d for d in decisions if d.kind == "sample"))
    for item, (choice, label, by) in sorted(settled.items(), key=lambda one: int(one[0])):
        if choice != "keep":
            said = (f"{d.reviewer}: {d.choice} {d.label}".strip() + copy_of(d, item) for d in by)
            s, who = findings.sample[int(item)], "; ".join(said)
            table.append((s.row, s.path, s.label, choice, label, who, "; ".join(d.note for d in by if d.note)))
    return table


def label_changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every label of a sample that is added, removed or disputed."""
    table: list[tuple] = [("row", "path", "labels", "label", "change", "reviewers", "notes")]
    questions = findings.questions or {}
    settled = find_consensus(d for d in decisions if d.kind == "label")
    for item, (choice, _, by) in sorted(settled.items(), key=lambda one: questions[one[0]][:2]):
        if choice != "keep":
            s, label = findings.sample[questions[item].row], questions[item].label
            who = "; ".join(f"{d.reviewer}: {d.choice}" for d in by)
            table.append((s.row, s.path, s.label, label, choice, who, "; ".join(d.note for d in by if d.note)))
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


def note_review(findings: Findings, decisions: Iterable[Decision], folder: Path) -> None:
    """Write at the top of audit.html how many questions are reviewed, and where the corrected table is."""
    made, page, table = list(decisions), folder / "audit.html", folder / "corrected.csv"
    if not made or not page.exists():
        return
    questions, kind = Questioned(findings), "sample" if findings.questions is None else "label"
    found = questions.progress(kind, {one.item for one in made})
    line = f"<b>Reviewed: {found['done']:,} of {found['whole']:,}.</b> The corrected table is <code>{escape(str(table))}</code>; "
    line = f'<p id="reviewed">{line}this page shows the labels before the review.</p>'
    write_text(page, REVIEWED_LINE.sub(lambda old: line, page.read_text("utf-8"), count=1))


def corrected_features(folder: Path) -> Path | None:
    """Return the file that `write_corrected_features` writes; None if the audit computed no features, or too large ones."""
    source = folder / FEATURES_FILE
    return folder / "corrected.npz" if source.exists() and source.stat().st_size <= MAX_FEATURES_BYTES else None


def write_corrected_features(store: Store, folder: Path) -> Path | None:
    """Write the features of an audit with all changes of labels, for training a head, and return the path of the file.

    None, and nothing is written, without decisions, and without such features (`corrected_features`).
    """
    findings, made, file = store.findings, store.current_decisions(), corrected_features(folder)
    if not made or file is None:
        return None
    source = folder / FEATURES_FILE
    with np.load(source, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files if name not in ("data", "label")}  # `data`: other labels
    label_of, given = new_labels(findings, made), columns["class_name"].tolist()
    new = [label_of.get(row, label) for row, label in zip(columns["row"].tolist(), given, strict=True)]
    kept = np.array([label is not None for label in new])
    names = np.array([label for label in new if label is not None], str)
    if "coarse" in columns:
        above = dict(zip(given, columns["coarse"].tolist(), strict=True))
        columns["coarse"] = np.array([above.get(label, "") for label in new], str)
    columns = {name: cells[kept] if cells.ndim else cells for name, cells in columns.items()}
    columns |= {"class_name": names, "label": np.unique(names, return_inverse=True)[1]}
    columns |= {"labels": names} if "labels" in columns else {}
    write_arrays(file, columns)
    return file
