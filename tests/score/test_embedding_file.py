"""Scores of a file of embeddings."""

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.types import LikewiseError
from score.by_hand import NAMES, some

from likewise.score.evaluate import evaluate


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"checkpoint": "untrained"}, "--checkpoint needs a run"),
        ({"data": "birds"}, "--data needs a run"),
        ({"per_query": "each.csv"}, "--per-query must end in .parquet"),
        ({"per_query": "each.parquet", "metrics": ("rho",)}, "needs at least one metric per query"),
        ({"split": "test", "column": "train"}, "the test split of 'z' is empty.*or use --split train"),
    ],
)
def test_what_a_file_of_embeddings_has_no_answer_to_is_refused_at_once(tmp_path, settings, says):
    x, y = some()
    column = settings.pop("column", "test")
    np.savez(tmp_path / "z.npz", x=x, label=y, split=np.full(60, column))
    with pytest.raises(LikewiseError, match=says):
        evaluate(Evaluate(**{"target": str(tmp_path / "z.npz"), "metrics": NAMES, "quiet": True, **settings}))
