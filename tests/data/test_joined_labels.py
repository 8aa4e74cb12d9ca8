"""Joined names of labels: split, joined again, and as label sets of items."""

import numpy as np

from likewise.data.joined_labels import join_labels, labels_by_class, split_labels, with_label_sets
from likewise.types import Items


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
