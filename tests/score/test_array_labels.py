"""Labels and relevance as arrays: lists, matrices, and what is refused."""

import importlib.util
import math
import sys

import numpy as np
import pytest
import torch
from likewise.relevance import GivenValues
from likewise.types import LikewiseError
from score.several_labels import circle

import likewise
from likewise.score.evaluate_arrays import items_of_arrays


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
    with pytest.raises(LikewiseError, match="labels or a matrix; pass .* array"):
        items_of_arrays(np.eye(2), [[1, 1], [0, 1]])
    with pytest.raises(LikewiseError, match="at least one label, but row 1"):
        items_of_arrays(np.eye(2), [["a"], []])
    with pytest.raises(LikewiseError, match="matrix of labels must hold 0 and 1"):
        items_of_arrays(np.eye(2), np.array([[0, 2], [1, 1]]))
    with pytest.raises(LikewiseError, match="each of the 4 embeddings, got shape"):
        likewise.evaluate(np.eye(4), [0, 0, 1, 1], relevance=np.eye(3), quiet=True)
    with pytest.raises(LikewiseError, match="matrix of numbers, got the type <U32"):
        likewise.evaluate(np.eye(4), [0, 0, 1, 1], relevance=np.eye(4).astype(str), quiet=True)


def test_columns_of_lists_and_matrices_of_words_are_lists_of_labels():
    sets = [["a", "b"], ["b", "c"], ["a", "c"]]
    column = np.empty(3, object)
    column[:] = sets
    given = [sets, column, np.array(sets), [np.array(one) for one in sets], list(map(set, sets))]
    if (pandas := sys.modules.get("pandas")) or importlib.util.find_spec("pandas"):
        pandas = pandas or importlib.import_module("pandas")
        given += [pandas.Series(sets, index=[7, 8, 9]), pandas.DataFrame(sets)]
    for y in given:
        assert items_of_arrays(np.eye(3), y).label_sets == ((0, 1), (0, 2), (1, 2)), type(y)
    hot = np.array([[1, 1], [0, 1]], object)
    assert items_of_arrays(np.eye(2), hot).label_sets == ((0, 1), (1,))
    assert items_of_arrays(np.eye(2), list(hot.astype(int))).label_sets == ((0, 1), (1,))


def test_labels_that_are_empty_or_hold_the_separator():
    for bad in (None, math.nan, "", " ", np.float32("nan")):
        with pytest.raises(LikewiseError, match="must not be empty, but row 1"):
            items_of_arrays(np.eye(2), [["a", "b"], ["a", bad]])
    with pytest.raises(LikewiseError, match=r"'\|' separates labels, so it cannot be in one, got 'a\|b' in row 1"):
        items_of_arrays(np.eye(2), [["a", "b"], ["a|b", "c"]])
    mixed = np.empty(2, object)
    mixed[:] = [["a", "b"], "a"]
    with pytest.raises(LikewiseError, match="row 1 has one label and row 0 a list"):
        items_of_arrays(np.eye(2), mixed)


def test_ready_values_are_by_row_or_by_class():
    z, rng = circle(0, 10, 25, 45, 70, 100), np.random.default_rng(0)
    values = rng.random((6, 6))
    how = {"metrics": ("NDCG@3",), "quiet": True, "device": "cpu"}
    ready = GivenValues(torch.as_tensor(values))
    expected = likewise.evaluate(z, [0, 0, 0, 1, 1, 1], relevance=values, **how)["metrics"]
    assert likewise.evaluate(z, [0, 0, 0, 1, 1, 1], relevance=ready, **how)["metrics"] == expected
    assert ready.by == "class"  # that of the caller is not changed
    assert likewise.evaluate(z, np.arange(6), relevance=ready, **how)["metrics"] == expected
    two = GivenValues(torch.tensor([[1, 0.2], [0.2, 1]]))
    by_class = likewise.evaluate(z, [0, 0, 0, 1, 1, 1], relevance=two, **how)["metrics"]
    wide = np.array([[1, 0.2], [0.2, 1]])[np.ix_([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])]
    assert by_class == likewise.evaluate(z, [0, 0, 0, 1, 1, 1], relevance=wide, **how)["metrics"]
    with pytest.raises(LikewiseError, match="6 embeddings, .* 3 classes, got 2"):
        likewise.evaluate(z, [0, 0, 1, 1, 2, 2], relevance=two, **how)
    with pytest.raises(LikewiseError, match="by row or by class, .* 6 of both"):
        likewise.evaluate(z, [5, 4, 3, 2, 1, 0], relevance=ready, **how)
