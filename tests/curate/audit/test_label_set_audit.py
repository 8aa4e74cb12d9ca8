"""`likewise.audit_labels(z, label_sets=...)`."""

import numpy as np
import pytest
from likewise.errors import LikewiseError
from made_label_sets import NAMES, features_of, label_matrix, noisy_matrix

import likewise
from likewise.curate.audit.label_set_audit import multi_hot


def test_missing_and_superfluous_labels_of_embeddings():
    true = label_matrix(300)
    noisy, z = noisy_matrix(true), features_of(true)
    texts = ["|".join(NAMES[n] for n in np.flatnonzero(row)) for row in noisy]
    found = likewise.audit_labels(z, label_sets=texts, device="cpu")
    assert found.label == NAMES and len(found) == 300 and (found.has == noisy).all()
    row, label = found.issues[0]
    assert found.wrong[row, label] == np.nanmax(found.wrong) and noisy[row, label] != true[row, label]
    assert (found.missing[noisy] == 0).all() and (found.superfluous[~noisy] == 0).all()
    changed = set(texts[row].split("|")) ^ set(found.suggested[row])
    assert NAMES[label] in changed
    assert "300 samples" in found.summary() and found.summary() in repr(found) and "missing" in found._repr_html_()
    lists = [row.split("|") for row in texts]
    again = likewise.audit_labels(z, label_sets=lists, device="cpu")
    np.testing.assert_array_equal(found.wrong, again.wrong)


def test_multi_hot_by_hand():
    names, has = multi_hot(["b|a", ["c"], [1, "a"]])
    assert names == ("1", "a", "b", "c")
    assert has.tolist() == [[False, True, True, False], [False, False, False, True], [True, True, False, False]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "labels must be given as y or as label_sets, got neither"),
        ({"y": [0, 1], "label_sets": ["a", "b"]}, "got both"),
        ({"label_sets": ["a", "b", "c"]}, "one entry per embedding, got 3 for 2"),
        ({"label_sets": ["a", ""]}, "every sample must have a label or more, but row 1 has none"),
    ],
)
def test_errors(given, message):
    with pytest.raises(LikewiseError, match=message):
        likewise.audit_labels(np.ones((2, 3), np.float32), **given)


def test_zero_embeddings():
    with pytest.raises(LikewiseError, match=r"must not be all zeros, but 1 of 2 are \(first: row 1\)"):
        likewise.audit_labels(np.array([[1.0, 0], [0, 0]], np.float32), label_sets=["a", "b"])


def test_spaces_and_empty_parts_of_a_text_are_no_labels():
    names, has = multi_hot(["red | dress", "red|", " dress"])
    assert names == ("dress", "red") and has.tolist() == [[True, True], [False, True], [True, False]]
