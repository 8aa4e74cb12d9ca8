"""Votes of several workers about samples: from the column `votes` of a table, or from a long table (sample, worker, label)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from likewise.core.errors import nearest_name
from likewise.core.types import Items, LikewiseError, Votes
from likewise.data.schema import text, words_of
from likewise.data.tabular import Sheet, read_sheet

VOTE_SEPARATOR, WORKER_SEPARATOR = "|", ":"
"""Between the votes in a cell of the column `votes`, and between a worker and this worker's vote."""

SAMPLE_COLUMNS = ("sample", "path", "row")
"""Names of the column that names the sample of a vote, the first that the table has: a path, or a row from 0."""


def votes_of(items: Items, file: str | None = None) -> Votes | None:
    """Return the votes about the samples: those of a long table, or else those of the column `votes`; None if there are none."""
    if items.label_sets is not None and (file is not None or items.votes is not None):
        raise LikewiseError(
            f"votes: '{items.name}' has several labels per sample, and votes are for one; leave out --votes and the column votes"
        )
    if file is not None:
        return read_votes(file, items)
    return None if items.votes is None else votes_of_cells(items.votes.tolist(), items)


def read_votes(file: str, items: Items) -> Votes:
    """Read a long table, one line per vote: `sample,worker,label`.

    A sample is a path as in the data (or its file name, if no other sample has it), or a row number from 0 in the column `row`.
    A label is a class name of the data. Without the column worker, the workers are not known.

    Args:
        file: .csv (UTF-8, commas) or .parquet.
    """
    sheet = read_sheet(os.path.expanduser(file))
    name = next((one for one in SAMPLE_COLUMNS if one in sheet.column), None)
    if name is None:
        raise LikewiseError(
            f"votes: {sheet.file} must have the columns sample, worker and label, got: {', '.join(sheet.column)}; rename the "
            "column that holds the path of the image to sample"
        )
    row = sample_rows(sheet, name, items)
    label = label_numbers(sheet, items)
    words = words_of(sheet, "worker") if "worker" in sheet.column else [""] * len(sheet)
    kept = np.flatnonzero(row >= 0)
    found = gather(row[kept], [words[at] for at in kept.tolist()], label[kept])
    check_workers(found, items, lambda at: sheet.at(int(kept[at])))
    return found


def sample_rows(sheet: Sheet, name: str, items: Items) -> np.ndarray:
    """Return the row of every line; -1 for a line about a broken image that was skipped."""
    cells, known = words_of(sheet, name), sample_numbers(items, name)
    rows = np.array([known.get(word, -2) for word in cells], np.int64)
    for at in np.flatnonzero(rows == -2).tolist():
        near = nearest_name(cells[at], list(known)[:5000])
        raise LikewiseError(
            f"votes: {name} must name a sample of '{items.name}', got {cells[at]!r} in {sheet.at(at)}{near} "
            f"{int((rows == -2).sum())} of {len(rows)} lines name none; correct or remove them"
        )
    for at in np.flatnonzero(rows == -3).tolist():
        raise LikewiseError(
            f"votes: {name} must name one sample of '{items.name}', but several have the path {cells[at]!r} in {sheet.at(at)}; "
            "name samples by a column row, which counts them from 0"
        )
    return rows


def sample_numbers(items: Items, name: str) -> dict[str, int]:
    """Return name -> row of all samples; also by file name, if one sample alone has it.

    -1 for samples that were skipped, and -3 for a path that several samples have, such as boxes of one image. Rows count the
    samples that were skipped too.
    """
    if items.path is None or name == "row":
        skipped = {row for row, _ in items.skipped}
        kept = (row for row in range(len(items) + len(skipped)) if row not in skipped)
        return {str(row): place for place, row in enumerate(kept)} | {str(row): -1 for row in skipped}
    base = os.path.join(items.root, "")
    count = Counter(items.path)
    paths = {path: row if count[path] == 1 else -3 for row, path in enumerate(items.path)}
    paths |= {path: -1 for _, path in items.skipped}
    short: dict[str, list[int]] = {}
    for path, row in paths.items():
        for other in {os.path.basename(path), path.removeprefix(base), base + path}:
            short.setdefault(other, []).append(row)
    return {other: rows[0] for other, rows in short.items() if len(rows) == 1} | paths


def label_numbers(sheet: Sheet, items: Items) -> np.ndarray:
    """Return the class number of every line; raise if a label is no class of the data."""
    words, known = words_of(sheet, "label"), class_numbers_of(items)
    for at, word in enumerate(words):
        if word not in known:
            raise unknown_label(word, items, sheet.at(at))
    return np.array([known[word] for word in words], np.int64)


def class_numbers_of(items: Items) -> dict[str, int]:
    return {name: number for number, name in enumerate(items.class_name)}


def unknown_label(word: str, items: Items, where: str) -> LikewiseError:
    return LikewiseError(
        f"votes: a label must be a class of '{items.name}', got {word!r} in {where}{nearest_name(word, items.class_name)} "
        "Correct it, or remove the vote"
    )


def votes_of_cells(cells: Sequence[Any], items: Items) -> Votes:
    """Return the votes of the column `votes`: `cat|cat|dog`, or with workers `anna:cat|ben:dog`; an empty cell has none."""
    known = class_numbers_of(items)
    rows, workers, labels = [], [], []
    for row, cell in enumerate(cells):
        for word in filter(None, (part.strip() for part in text(cell).split(VOTE_SEPARATOR))):
            worker, mark, label = word.partition(WORKER_SEPARATOR)
            if word in known or not mark:
                worker, label = "", word
            if label.strip() not in known:
                raise unknown_label(label.strip(), items, f"the votes of {sample_name(items, row)}")
            rows.append(row)
            workers.append(worker.strip())
            labels.append(known[label.strip()])
    found = gather(np.array(rows, np.int64), workers, np.array(labels, np.int64))
    check_workers(found, items, lambda at: f"the votes of {sample_name(items, rows[at])}")
    return found


def sample_name(items: Items, row: int) -> str:
    return f"row {row}" if items.path is None else repr(items.path[row])


def gather(row: np.ndarray, worker: Sequence[str], label: np.ndarray) -> Votes:
    """Return the votes with their workers numbered in sorted order of their names; an empty name is not known: -1."""
    names = sorted(set(worker) - {""})
    number = {name: place for place, name in enumerate(names)}
    return Votes(row, np.array([number.get(name, -1) for name in worker], np.int64), label, tuple(names))


def check_workers(votes: Votes, items: Items, where) -> None:
    """Raise if there are no votes, or if a worker votes twice about a sample.

    Args:
        where: returns the place of a vote in the file, as text.
    """
    if not len(votes.row):
        raise LikewiseError(
            f"votes: there must be votes about '{items.name}', got none; fill the table, or leave it out"
        )
    named = np.flatnonzero(votes.worker >= 0)
    key = votes.worker[named] * len(items) + votes.row[named]
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    if (count > 1).any():
        repeated = np.setdiff1d(np.arange(len(key)), first)
        at = int(named[repeated[0]])
        raise LikewiseError(
            f"votes: a worker votes once about a sample, but {votes.worker_name[votes.worker[at]]!r} votes again in "
            f"{where(at)}; keep one of the votes ({len(repeated)} are repeated)"
        )
