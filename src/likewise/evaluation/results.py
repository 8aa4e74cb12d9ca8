"""Write the results of an evaluation into the run folder: embeddings.npz, per_query.parquet and scores.json."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from likewise.runs import log
from likewise.runs.embeddings import EMBEDDINGS_FILE, save_embeddings
from likewise.runs.folder import Run
from likewise.runs.per_query import PER_QUERY, write_per_query
from likewise.runs.scores import write_scores
from likewise.types import Embedded, Items, Retrieval, Scores


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
    """Write the embeddings of the test split, its queries and its scores; the baseline in scores.json stays."""
    made_by = {"run": run.path, "checkpoint": result["checkpoint"], "similarity": result["similarity"]}
    save_embeddings(run.path / EMBEDDINGS_FILE, e, items, made_by, result["split"], sides)
    write_per_query(run.path / PER_QUERY, scores, found, e, items)
    known = run.scores or {}
    before = (
        {"before": known["before"]} if "before" in known else {}
    )  # the baseline does not depend on the training; see baseline.py
    write_scores(run.path, result | before)
