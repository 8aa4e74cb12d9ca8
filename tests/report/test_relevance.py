"""Relevance of results: of sets of labels, of a run, and none."""

import numpy as np
import pytest
from likewise.config import Train
from likewise.relevance import SharedLabels
from likewise.types import Items
from report.label_facts import SETS

from likewise.report.relevance import by_class, relevance_of, trained_relevance
from likewise.report.target import ReportTarget

NAMES = ("blue", "dress", "hat", "red", "shirt")
TREE = {"wren": ("bird",), "robin": ("bird",), "cat": ("mammal",)}


def shop():
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    return Items("shop", np.arange(5), names, label_name=NAMES, label_sets=SETS)


def test_sets_of_labels_are_compared_by_the_labels_in_common():
    found = relevance_of(ReportTarget("z", items=shop()))
    for a, ours in enumerate(SETS):
        by_hand = [len(set(ours) & set(theirs)) / len(set(ours) | set(theirs)) for theirs in SETS]
        assert found(a, np.arange(5)).tolist() == pytest.approx(by_hand, abs=1e-6)  # float32


def test_single_labels_have_none():
    items = Items("birds", np.arange(3), tuple(TREE), taxonomy=TREE)
    assert relevance_of(ReportTarget("z")) is None and relevance_of(ReportTarget("z", items=items)) is None
    assert relevance_of(ReportTarget("z", items=items, settings=Train("birds"))) is None


def test_a_run_is_shown_with_the_relevance_that_trained_it():
    items = Items("birds", np.arange(3), tuple(TREE), taxonomy=TREE)
    one = ReportTarget("z", items=items, settings=Train("birds", relevance="TreeDepth()"))
    found = relevance_of(one)
    assert found(0, np.arange(3)).tolist() == [1, 0.5, 0]
    overlap = Train("shop", relevance='SharedLabels(measure="any")')
    assert relevance_of(ReportTarget("z", items=shop(), settings=overlap))(0, np.array([4, 3])).tolist() == [1, 0]
    other = ReportTarget("z", items=items, settings=Train("birds", relevance="SharedLabels()"))
    assert trained_relevance(other, items) is None  # made for other data


def test_classes_in_classes_out():
    assert by_class(SharedLabels(SETS))(0, np.array([0])).dtype == np.float64
