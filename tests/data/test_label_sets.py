"""Pairs of samples and labels, new sets of labels as new classes, and joined names of labels."""

import numpy as np
from likewise.types import Items

from likewise.data.label_sets import (
    join_labels,
    labels_by_class,
    sample_labels,
    set_names,
    split_labels,
    with_label_sets,
    with_labels,
)
from likewise.data.own_reader import check_items

NAMES = ("dress", "red", "striped")
SETS = ((0,), (0, 1), (1, 2))
ITEMS = Items(
    "t", np.array([1, 0, 1, 2]), ("dress", "dress|red", "red|striped"), path=("1", "2", "3", "4"), label_name=NAMES,
    label_sets=SETS,
)  # fmt: skip


def test_pairs_of_samples_and_labels():
    items = ITEMS
    sample, label = sample_labels(items, items.y)
    assert list(zip(sample.tolist(), label.tolist())) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 1), (3, 2)]
    assert set_names(items.label_sets, items.label_name) == items.class_name
    plain = Items("t", np.array([1, 0]), ("a", "b"), path=("1", "2"))
    assert [column.tolist() for column in sample_labels(plain, plain.y)] == [[0, 1], [1, 0]]


def test_other_labels_keep_the_numbers_of_the_classes():
    items = ITEMS
    changed = with_labels(items, np.array([1, 3]), np.array([1, 0, 1]), np.array([1, 2, 0]))
    assert changed.class_name == (*items.class_name, "striped") and changed.label_sets == (*items.label_sets, (2,))
    assert [changed.class_name[c] for c in changed.y] == ["dress|red", "striped", "dress|red", "dress|red"]
    check_items(changed, "test")


def test_names_are_split_and_joined():
    assert split_labels("dress|red") == ("dress", "red")
    assert split_labels(" red | red |dress|") == ("red", "dress")
    assert split_labels("|") == ("|",) and split_labels("plain") == ("plain",)
    assert join_labels(("dress", "red")) == "dress|red"


def test_items_get_their_label_sets():
    items = Items("shop", np.array([0, 1, 1]), ("dress|red", "red|shirt"))
    found = with_label_sets(items)
    assert found.label_name == ("dress", "red", "shirt") and found.label_sets == ((0, 1), (1, 2))
    assert labels_by_class(found) == (("dress", "red"), ("red", "shirt")) and labels_by_class(items) is None
