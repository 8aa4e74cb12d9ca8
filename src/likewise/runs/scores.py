"""scores.json: the metrics of a run on its test split with intervals, and those of the network before training."""

from __future__ import annotations

from pathlib import Path

from likewise.core.argument_checks import misfit
from likewise.core.errors import LikewiseError
from likewise.core.files import read_json, write_json

SCORES_FILE = "scores.json"
REWRITE_HINT = "delete it: the same command writes it again"
"""Advice for a damaged file that evaluation can write again."""


NUMBER_BY_NAME, TEXT_BY_NAME, COUNT_BY_NAME, ENDS_BY_NAME = {str: float}, {str: str}, {str: int}, {str: [float, float]}
SIDE_TYPES = {
    "metrics": NUMBER_BY_NAME, "interval": ENDS_BY_NAME, "no_interval": TEXT_BY_NAME, "interval_over": str,
    "class_mean": NUMBER_BY_NAME, "no_value": TEXT_BY_NAME,
    "scored": COUNT_BY_NAME, "queries": int, "unscored": int, "rows": int, "dim": int, "similarity": str,
}  # fmt: skip
"""Types of the scores of one gallery or camera."""

CHANGE_TYPES = {"metric": str, "over": str, "low": float | None, "high": float | None}
LABEL_TYPES = {"metrics": NUMBER_BY_NAME, "interval": ENDS_BY_NAME, "queries": int}
SCORE_TYPES = SIDE_TYPES | {
    "checkpoint": str, "split": str, "leaks": str | None, "note": str, "best_test_epoch": (NUMBER_BY_NAME, None),
    "length": [float, float], "relevance": {"spec": str, "relevant": str, "triplets": int, "units": str},
    "wrong_labels": {"count": int, "of": int},
    "tree": {"levels": COUNT_BY_NAME, "height": int, "mistakes_by_height": COUNT_BY_NAME},
    "labels": {"count": int, "mean": NUMBER_BY_NAME, "each": {str: LABEL_TYPES}},
    "corrected": ({"source": str, "metrics": {str: [float, float, float]}, "unknown": TEXT_BY_NAME}, None),
    "galleries": {str: SIDE_TYPES}, "cameras": {str: SIDE_TYPES}, "other_cameras": SIDE_TYPES,
    "before": SIDE_TYPES | {"change": CHANGE_TYPES},
}  # fmt: skip
"""Types of the entries of scores.json. All but `metrics` may be missing."""


def write_scores(folder: Path, scores: dict) -> None:
    """Write scores.json into a run folder."""
    write_json(folder / SCORES_FILE, scores)


def read_scores(folder: Path) -> dict | None:
    """Return the scores in a run folder; None if it was not evaluated."""
    file = folder / SCORES_FILE
    if not file.exists():
        return None
    scores = read_json(file, "run", hint=REWRITE_HINT)
    wrong = misfit({"metrics": None} | scores, SCORE_TYPES)
    if wrong is not None:
        raise LikewiseError(f"run: {file} is damaged (the value of {wrong} has another type); {REWRITE_HINT}")
    return scores
