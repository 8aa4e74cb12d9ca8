"""Adopt records of trainings from results.csv: cells that were trained elsewhere count as finished, without their weights."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from likewise.errors import LikewiseError
from likewise.experiments.jobs import PlannedRun, Record
from likewise.render.benchmark_table import BEST_EPOCH


def adopt(plan: Sequence[PlannedRun], files: Sequence[str]) -> tuple[list[PlannedRun], list[str]]:
    """Return the plan with the records of finished trainings of the same identity, and a note for every file.

    A training that is finished here keeps its own run. Folds are not adopted: their joint scores need their embeddings.
    """
    plan, notes = list(plan), []
    for file in files:
        records = read_records(file)
        fitting = [place for place, t in enumerate(plan) if is_record_of(t, records.get(t.job.identity, {}))]
        for place in fitting:
            plan[place] = replace(plan[place], record=as_record(records[plan[place].job.identity], file))
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
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"bench: --adopt must be a results.csv that bench wrote, got '{file}' ({error})") from None
    if rows and not {"identity", "status"} <= rows[0].keys():
        raise LikewiseError(
            f"bench: --adopt must be a results.csv that bench wrote, with the columns identity and status, got '{file}' "
            f"with {', '.join(list(rows[0])[:6])}"
        )
    return {row["identity"]: row for row in rows if row["status"] in ("finished", "adopted")}


def as_record(row: dict[str, str], file: str) -> Record:
    """Return a row of results.csv as the scores and the facts of a training."""
    numbers = {name: float(text) for name, text in row.items() if text and _is_number(text)}
    best = {name.removesuffix(BEST_EPOCH): value for name, value in numbers.items() if name.endswith(BEST_EPOCH)}
    return Record({"metrics": numbers, "best_test_epoch": best}, {**row, "adopted": file})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
