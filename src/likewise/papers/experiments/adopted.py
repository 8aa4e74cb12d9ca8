"""Adopt records of trainings from results.csv: cells that were trained elsewhere count as finished, without their weights."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from likewise.core.errors import LikewiseError
from likewise.papers.experiments.jobs import PlannedRun, Record
from likewise.papers.render.benchmark_table import BEST_EPOCH


def adopt(plan: Sequence[PlannedRun], files: Sequence[str]) -> tuple[list[PlannedRun], list[str]]:
    """Return the plan with the records of finished trainings of the same identity, and a note for every file.

    A training that is finished here keeps its own run. Folds are not adopted: their joint scores need their embeddings.
    """
    plan, notes = list(plan), []
    for file in files:
        records = read_records(file)
        fitting = [place for place, t in enumerate(plan) if is_record_of(t, records.get(t.job.identity, {}))]
        for place in fitting:
            job = plan[place].job
            plan[place] = replace(plan[place], record=as_record(records[job.identity], file, job.config.metrics))
        notes.append(
            f"{len(fitting)} of the {len(records)} finished trainings in {file} are cells of this table: adopted"
        )
    return plan, notes


def is_record_of(t: PlannedRun, row: dict[str, str]) -> bool:
    """Return whether a row of results.csv can replace a training: it has all metrics, and the training is not finished here."""
    return t.fold is None and all(row.get(metric) for metric in t.job.config.metrics) and t.job.state != "finished"


def read_records(file: str) -> dict[str, dict[str, str]]:
    """Return identity -> row of every finished training in a results.csv."""
    try:
        with Path(file).expanduser().open(encoding="utf-8", newline="") as lines:
            head, *cells = csv.reader(lines, strict=True)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"bench: --adopt must be a results.csv that bench wrote, got '{file}' ({error})") from None
    except ValueError:
        head, cells = [], []  # an empty file
    if not {"identity", "status"} <= set(head) or len(set(head)) < len(head):
        raise LikewiseError(
            "bench: --adopt must be a results.csv that bench wrote, with the columns identity and status and none twice, got "
            f"'{file}' with {', '.join(head[:6]) or 'nothing'}"
        )
    records: dict[str, dict[str, str]] = {}
    for number, line in enumerate(cells, 2):
        row = dict(zip(head, line))
        if len(line) != len(head):
            raise LikewiseError(
                f"bench: --adopt {file}: line {number} must have {len(head)} cells, got {len(line)}; restore a copy of the file"
            )
        if row["status"] not in ("finished", "adopted"):
            continue
        if records.setdefault(row["identity"], row) != row:
            raise LikewiseError(
                f"bench: --adopt {file}: a training must have one line, but lines with different results have the identity "
                f"{row['identity']}; delete all but one"
            )
    return records


def as_record(row: dict[str, str], file: str, metrics: Sequence[str]) -> Record:
    """Return a row of results.csv as the scores and the facts of a training; raises unless the metrics are finite numbers."""
    numbers = {name: float(text) for name, text in row.items() if _is_number(text)}
    odd = next((metric for metric in metrics if metric not in numbers), None)
    if odd is not None:
        raise LikewiseError(
            f"bench: --adopt {file}: {odd} of a finished training must be a finite number, got {row[odd]!r}; restore a copy of "
            "the file"
        )
    best = {name.removesuffix(BEST_EPOCH): value for name, value in numbers.items() if name.endswith(BEST_EPOCH)}
    return Record({"metrics": numbers, "best_test_epoch": best}, {**row, "adopted": file})


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
