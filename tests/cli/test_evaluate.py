"""Scores of arrays are those of a file with the same vectors, and arguments that do not go together are named."""

import numpy as np
import pytest
import torch
from likewise.config import Evaluate
from likewise.errors import LikewiseError

import likewise
from likewise.score.evaluate import evaluate
from likewise.score.score_table import Scored

METRICS = ("R@1", "MAP@R", "NMI")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Twelve classes of six vectors, in memory and in a file."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(12), 6)
    z = (rng.normal(size=(12, 8))[y] + rng.normal(size=(72, 8))).astype(np.float32)
    file = tmp_path_factory.mktemp("vectors") / "z.npz"
    np.savez(file, x=z, label=y)
    return z, y, str(file)


def test_arrays_are_scored_as_a_file_is(vectors, tmp_path):
    z, y, file = vectors
    for settings in ({}, {"similarity": "euclidean"}):
        want = evaluate(Evaluate(target=file, metrics=METRICS, device="cpu", quiet=True, **settings))
        for arrays in ((z, y), (torch.as_tensor(z), torch.as_tensor(y)), (z.astype(np.float64), y.tolist())):
            found = likewise.evaluate(*arrays, metrics=METRICS, device="cpu", quiet=True, **settings)
            assert found == want and isinstance(found, Scored)
    named = likewise.evaluate(z, np.array([f"class {c:02d}" for c in y]), metrics=METRICS, device="cpu", quiet=True)
    assert named == likewise.evaluate(z, labels=y, metrics=METRICS, device="cpu", quiet=True)
    likewise.evaluate(z, y, per_query=tmp_path / "mine.parquet", device="cpu", quiet=True)
    likewise.evaluate(file, per_query=tmp_path / "file.parquet", device="cpu", quiet=True)
    assert likewise.compare(tmp_path / "mine.parquet", tmp_path / "file.parquet")["same"]


def test_arguments_that_do_not_go_together_are_named(vectors, finished, tmp_path):
    z, y, file = vectors
    np.save(tmp_path / "y.npy", y)
    for arguments, settings, says in (
        ((z,), {}, "must come with an array of labels, got no labels"),
        ((z, tmp_path / "y.npy"), {}, "must come with an array of labels, got a file"),
        ((file, y), {}, "the labels of a file must be a file too"),
        ((finished, y), {}, "the labels of a file must be a file too, and a run has labels of its own"),
        ((finished, tmp_path / "y.npy"), {}, "is a run and has labels of its own"),
        ((finished,), {"per_query": "q.parquet"}, "is a run and has per-query of its own"),
        ((file,), {"checkpoint": "last"}, "is a file of embeddings, but --checkpoint needs a run"),
        ((z, y), {"checkpoint": "last"}, "arrays of embeddings were given, but --checkpoint needs a run"),
        ((z, y), {"data": "birds/"}, "--data needs a run"),
        ((z, y), {"split": "val"}, "an array has no `split` column, so no val split"),
        ((z, y[:-1]), {}, "has 72 rows, but label has 71"),
        ((z * 0, y), {}, "an embedding must not be all zeros"),
        ((z, y), {"metric": ["R@1"]}, r"evaluate has no setting 'metric'; did you mean 'metrics'\?"),
    ):
        with pytest.raises(LikewiseError, match=says):
            likewise.evaluate(*arguments, device="cpu", quiet=True, **settings)
