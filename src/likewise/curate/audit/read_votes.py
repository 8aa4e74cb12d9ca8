"""Reader of the votes in an audit folder: annotators.csv (quality of the workers), consensus.csv (label of every sample) and
annotator_votes.csv (single votes)."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import NamedTuple

from likewise.core.errors import LikewiseError
from likewise.core.files import open_csv


class WorkerLine(NamedTuple):
    """One line of annotators.csv: a worker, the least accurate first."""

    name: str
    votes: int
    accuracy: float
    low: float
    high: float
    disagreement: float | None  # None: no other votes about the same samples
    confused: str  # true class of the most frequent wrong votes; empty: none
    confused_with: str
    confused_votes: float

    @property
    def confusion(self) -> str:
        """The most frequent confusion in words; empty if there is none."""
        times = "once" if round(self.confused_votes) == 1 else f"{self.confused_votes:.0f} times"
        return f"{self.confused} as {self.confused_with}, {times}" if self.confused else ""


class ConsensusLine(NamedTuple):
    """One line of consensus.csv: a sample with votes, disagreements first."""

    row: int
    path: str
    label: str
    consensus: str
    wrong: float  # estimated chance that the consensus is wrong; too low in tests
    state: str  # "undecided", "other label", "votes differ" or "agreed"
    label_score: float  # probability that the given label is right
    votes: int
    for_consensus: int
    voted: str


class VoteLine(NamedTuple):
    """One line of annotator_votes.csv: the label that a worker gave to a sample."""

    row: int
    worker: str  # empty: not known
    label: str


def read_workers(folder: str | os.PathLike) -> list[WorkerLine]:
    """Return the workers of an audit; empty without votes."""
    found = []
    for w in read_cells(Path(folder) / "annotators.csv", len(WorkerLine._fields)):
        accuracy, low, high = map(float, w[2:5])
        disagreement = float(w[5]) if w[5] else None
        found.append(WorkerLine(w[0], int(w[1]), accuracy, low, high, disagreement, w[6], w[7], float(w[8])))
    return found


def read_consensus(folder: str | os.PathLike) -> list[ConsensusLine]:
    """Return the consensus of an audit; empty without votes."""
    return [
        ConsensusLine(int(w[0]), w[1], w[2], w[3], float(w[4]), w[5], float(w[6]), int(w[7]), int(w[8]), w[9])
        for w in read_cells(Path(folder) / "consensus.csv", len(ConsensusLine._fields))
    ]


def read_votes(folder: str | os.PathLike) -> list[VoteLine]:
    """Return the single votes of an audit; empty without votes, and for audits that did not keep them."""
    found = read_cells(Path(folder) / "annotator_votes.csv", len(VoteLine._fields))
    return [VoteLine(int(row), worker, label) for row, worker, label in found]


def read_cells(file: Path, columns: int) -> list[list[str]]:
    """Return the cells of a table without its header; empty if there is no file."""
    if not file.exists():
        return []
    with open_csv(file) as lines:
        found = list(csv.reader(lines))
    if not found or any(len(line) != columns for line in found):
        raise LikewiseError(f"audit: {file} must have {columns} columns in every line; run the audit again")
    return found[1:]
