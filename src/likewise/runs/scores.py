"""scores.json: the metrics of a run's network on its test split, their intervals, and the same before training."""

from __future__ import annotations

from pathlib import Path

from likewise.errors import LikewiseError
from likewise.io.files import read_json, write_json

FILE = "scores.json"
ANEW = "delete it, and the same command writes it anew"
"""What to do about a damaged file that evaluating a run writes again."""


def write_scores(folder: Path, scores: dict) -> None:
    """Write scores.json into a run folder."""
    write_json(folder / FILE, scores)


def read_scores(folder: Path) -> dict | None:
    """Return the scores in a run folder; None where it was not evaluated."""
    file = folder / FILE
    if not file.exists():
        return None
    scores = read_json(file, "run", hint=ANEW)
    values = scores.get("metrics")
    if not isinstance(values, dict) or any(type(v) not in (int, float, type(None)) for v in values.values()):
        raise LikewiseError(f"run: {file} is damaged (metrics must be numbers); {ANEW}")
    return scores
