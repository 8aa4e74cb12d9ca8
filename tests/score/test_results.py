"""What evaluating a run writes."""

import numpy as np
from likewise.config import Evaluate

from likewise.runs.embeddings import EMBEDDINGS_FILE, origin
from likewise.runs.open import OpenRun
from likewise.runs.scores import PER_QUERY, read_per_query, read_scores, write_scores
from likewise.score.evaluate import evaluate_run


def test_scores_from_before_training_are_kept(run):
    before = {"metrics": {"R@1": 0.5}}
    write_scores(run.path, run.scores | {"before": before})
    for name in (EMBEDDINGS_FILE, PER_QUERY):
        (run.path / name).unlink()
    result = evaluate_run(OpenRun(run, device="cpu", quiet=True), Evaluate(str(run.path), metrics=("R@1",)))
    assert read_scores(run.path) == result | {"before": before} and list(result["metrics"]) == ["R@1"]
    assert np.array_equal(read_per_query(run.path / PER_QUERY, "test").row, origin(run.path / EMBEDDINGS_FILE)["row"])
