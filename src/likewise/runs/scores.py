"""scores.json: the metrics of a run on its test split with intervals, and those of the network before training."""

from __future__ import annotations

from pathlib import Path

from likewise.errors import LikewiseError
from likewise.io.files import read_json, write_json

SCORES_FILE = "scores.json"
REWRITE_HINT = "delete it: the same command writes it again"
"""Advice for a damaged file that evaluation can write again."""


def write_scores(folder: Path, scores: dict) -> None:
    """Write scores.json into a run folder."""
    write_json(folder / SCORES_FILE, scores)


def read_scores(folder: Path) -> dict | None:
    """Return the scores in a run folder; None if it was not evaluated."""
    file = folder / SCORES_FILE
    if not file.exists():
        return None
    scores = read_json(file, "run", hint=REWRITE_HINT)
    values = scores.get("metrics")
    if not isinstance(values, dict) or any(type(v) not in (int, float, type(None)) for v in values.values()):
        raise LikewiseError(f"run: {file} is damaged (metrics must be numbers); {REWRITE_HINT}")
    return scores
