"""What evaluating a run leaves in its folder: embeddings.npz, per_query.parquet and scores.json."""

from __future__ import annotations

from likewise.runs.embeddings import EMBEDDINGS, save_embeddings
from likewise.runs.open import OpenRun
from likewise.runs.per_query import PER_QUERY, write_per_query
from likewise.runs.scores import write_scores
from likewise.types import Embedded, Retrieval, Scores


def write_results(opened: OpenRun, e: Embedded, scores: Scores, found: Retrieval, result: dict) -> None:
    """Write the embeddings of the test part, its queries and its scores; scores from before training are kept."""
    run, items = opened.run, opened.items
    made_by = {"run": run.path, "which": opened.which, "similarity": result["similarity"]}
    sides = opened.protocol.sides(items, e.row.numpy())
    save_embeddings(run.path / EMBEDDINGS, e, items, made_by, result["part"], sides)
    write_per_query(run.path / PER_QUERY, scores, found, e, items)
    known = run.scores or {}
    before = (
        {"before": known["before"]} if "before" in known else {}
    )  # evaluating again does not change it; see `baseline`
    write_scores(run.path, result | before)
