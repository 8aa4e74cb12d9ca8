"""What evaluation writes can be read again, and says where it comes from."""

import numpy as np
import pytest

from likewise.stages.saved import find_target, origin
from likewise.types import LikewiseError


def test_an_embedding_file_says_where_it_comes_from(run):
    said = origin(run.path / "embeddings.npz")
    assert said["which"] == "best" and said["similarity"] == "cosine"
    assert len(said["row"]) == run.scores["rows"]


def test_a_file_that_says_nothing_is_fine(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.zeros((2, 2)))
    assert origin(tmp_path / "z.npz") == {} and origin(tmp_path / "z.npy") == {}


def test_a_target_that_is_not_there_is_named():
    with pytest.raises(LikewiseError, match="compare: there is no 'nowhere'"):
        find_target("nowhere", "compare")
