"""Write the results of an evaluation into the run folder: embeddings.npz, per_query.parquet and scores.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.runs import log
from likewise.runs.embeddings import EMBEDDINGS_FILE, save_embeddings
from likewise.runs.folder import Run
from likewise.runs.per_query import PER_QUERY, read_per_query, write_per_query
from likewise.runs.scores import write_scores
from likewise.score.merged_scores import mergeable, merged
from likewise.score.metrics import is_set_metric


def best_test_epoch(run: Run) -> dict | None:
    """Return the best logged test score of every metric; None if training never scored the test split."""
    return log.best_test_epoch(run.read_log())


def write_results(
    run: Run,
    items: Items,
    e: Embedded,
    sides: tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]],
    scores: Scores,
    found: Retrieval,
    result: dict,
) -> None:
    """Write the embeddings of the test split, its queries and its scores.

    The baseline in scores.json stays. If the run is finished, so do metrics that were computed earlier and not now.
    """
    made_by = {"run": run.path, "checkpoint": result["checkpoint"], "similarity": result["similarity"]}
    known = run.scores or {}
    earlier = earlier_columns(run, scores) if run.done and known else {}
    save_embeddings(run.path / EMBEDDINGS_FILE, e, items, made_by, result["split"], sides)
    whole = [name for name in known.get("metrics", {}) if is_set_metric(name)] if run.done else []
    stored = merged(known, result, [*earlier, *whole]) if run.done and known else result
    earlier = {name: column for name, column in earlier.items() if name in stored["metrics"]}
    write_per_query(run.path / PER_QUERY, scores, found, e, items, earlier)
    before = (
        {"before": known["before"]} if "before" in known else {}
    )  # the baseline does not depend on the training; see baseline.py
    write_scores(run.path, stored | before)


def write_queries(file: Path, scores: Scores, found: Retrieval, e: Embedded, items: Items) -> None:
    """Write the scores per query to a file outside of the run folder."""
    write_per_query(file, scores, found, e, items)


def add_set_metrics(run: Run, result: dict) -> None:
    """Add metrics of the whole set to scores.json of a finished run; nothing is written if the run was not scored."""
    known = run.scores if run.done else None
    if known and mergeable(known, result):
        parts = {name: known.get(name, {}) | result[name] for name in ("metrics", "no_value") if name in result}
        write_scores(run.path, known | parts)


def earlier_columns(run: Run, scores: Scores) -> dict[str, Float[np.ndarray, "Q"]]:
    """Return the metrics per query of an earlier evaluation of the same queries: name -> values; {} if there is none."""
    try:
        known = read_per_query(run.path / PER_QUERY, "evaluate")
    except LikewiseError:
        return {}
    same = np.array_equal(known.row, scores.query) and np.array_equal(known.label, scores.label)
    return known.each if same else {}
