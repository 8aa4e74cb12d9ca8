"""Labels and relevance as arrays: lists, matrices, and what is refused."""

import numpy as np
import pytest

import likewise
from likewise.evaluation.array_labels import items_of_arrays
from likewise.types import LikewiseError


def test_lists_and_matrices_are_sets_of_labels():
    lists, hot = (
        items_of_arrays(np.eye(3), [["a", "b"], ["b"], ["a", "b"]]),
        items_of_arrays(np.eye(3), np.array([[1, 1], [0, 1], [1, 1]])),
    )
    for items, names in ((lists, ("a", "b")), (hot, ("0", "1"))):
        assert items.label_name == names and items.label_sets == ((0, 1), (1,)) and items.y.tolist() == [0, 1, 0]
    assert lists.class_name == ("a|b", "b")
    assert items_of_arrays(np.eye(2), [["a"], ["b"]]).label_sets is None  # one label each: plain classes


def test_what_is_refused():
    with pytest.raises(LikewiseError, match="may be labels or a matrix; pass the matrix as an array"):
        items_of_arrays(np.eye(2), [[1, 1], [0, 1]])
    with pytest.raises(LikewiseError, match="every vector must have at least one label, but row 1 has none"):
        items_of_arrays(np.eye(2), [["a"], []])
    with pytest.raises(LikewiseError, match="matrix of labels must hold 0 and 1"):
        items_of_arrays(np.eye(2), np.array([[0, 2], [1, 1]]))
    with pytest.raises(LikewiseError, match="each of the 4 embeddings, got shape"):
        likewise.evaluate(np.eye(4), [0, 0, 1, 1], relevance=np.eye(3), quiet=True)
