"""scores.json: the metrics of a run on its test split with intervals, and those of the network before training."""

from __future__ import annotations

from pathlib import Path

from likewise.config.type_check import misfit
from likewise.errors import LikewiseError
from likewise.io.files import read_json, write_json

SCORES_FILE = "scores.json"
REWRITE_HINT = "delete it: the same command writes it again"
"""Advice for a damaged file that evaluation can write again."""


NUMBERS, TEXTS, COUNTS, ENDS = dict[str, float], dict[str, str], dict[str, int], dict[str, list[float, float]]
SIDE_TYPES = {
    "metrics": NUMBERS, "interval": ENDS, "no_interval": TEXTS, "interval_over": str, "class_mean": NUMBERS, "no_value": TEXTS,
    "scored": COUNTS, "queries": int, "unscored": int, "rows": int, "dim": int, "similarity": str,
}  # fmt: skip
"""Types of the scores of one gallery or camera."""

CHANGE_TYPES = {"metric": str, "over": str, "low": float | None, "high": float | None}
LABEL_TYPES = {"metrics": NUMBERS, "interval": ENDS, "queries": int}
SCORE_TYPES = SIDE_TYPES | {
    "checkpoint": str, "split": str, "leaks": str | None, "note": str, "best_test_epoch": NUMBERS | None,
    "length": list[float, float], "relevance": {"spec": str, "relevant": str, "triplets": int, "units": str},
    "wrong_labels": {"count": int, "of": int},
    "tree": {"levels": COUNTS, "height": int, "mistakes_by_height": COUNTS},
    "labels": {"count": int, "mean": NUMBERS, "each": dict[str, LABEL_TYPES]},
    "corrected": ({"source": str, "metrics": dict[str, list[float, float, float]], "unknown": TEXTS}, None),
    "galleries": dict[str, SIDE_TYPES], "cameras": dict[str, SIDE_TYPES], "other_cameras": SIDE_TYPES,
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
