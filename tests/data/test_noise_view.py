"""Pictures and tables of noise: every number stands where it belongs."""

import numpy as np
import pytest
from likewise.noise import Uniform
from likewise.types import Items

from likewise.data.noisy_table import (
    MAX_MATRIX_LINES,
    MAX_NAMED_CLASSES,
    draw_transitions,
    draw_tree,
    groups,
    grow,
    show_noise,
)

TREE = {"b": ("top", "x"), "a": ("top", "y"), "d": ("top", "y"), "c": ("top", "x", "deep")}


def made(true, now, names=("a", "b", "c", "d"), taxonomy=None):
    items = Items(name="toy", y=np.array(now), y_clean=np.array(true), class_name=tuple(names), taxonomy=taxonomy)
    return items, np.arange(len(true))


def words(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_the_matrix_counts_who_became_what():
    items, rows = made([0, 0, 0, 0, 1, 1, 2, 3], [0, 0, 1, 3, 1, 0, 2, 3])
    axes = draw_transitions(items, rows[:7]).axes[0]
    wrong, kept = (image.get_array() for image in axes.images)
    assert words(axes.yaxis) == words(axes.xaxis) == ["a", "b", "c", "d"]
    assert np.allclose(wrong.filled(9), [[9, 0.25, 0, 0.25], [0.5, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9]])
    assert np.allclose(np.diag(kept), [0.5, 0.5, 1, 0])  # no row of these is a d


def test_relatives_stand_together():
    items, rows = made([0, 1, 2, 3, 3], [0, 1, 2, 3, 0], taxonomy=TREE)
    axes = draw_transitions(items, rows).axes[0]
    assert words(axes.yaxis) == ["b", "c", "a", "d"]
    assert axes.images[0].get_array()[3, 2] == 0.5
    assert [line.get_ydata()[0] for line in axes.lines[::2]] == [1.5]  # between x and y


def test_many_classes_are_named_by_their_groups():
    count = MAX_NAMED_CLASSES + 20
    names = [f"{i:03d}" for i in range(count)]
    tree = {name: ("root", "left" if i < 50 else "right", name) for i, name in enumerate(names)}
    y = np.arange(count).repeat(3)
    axes = draw_transitions(*made(y, Uniform(0.3)(y, np.random.default_rng(0)), names, tree)).axes[0]
    assert words(axes.yaxis) == ["left", "right"] and axes.get_yticks().tolist() == [24.5, 64.5]
    plain = draw_transitions(*made(y, y, names)).axes[0]
    assert set(words(plain.yaxis)) <= {""}


def test_very_many_classes_share_lines():
    y = np.arange(2 * MAX_MATRIX_LINES + 1).repeat(2)
    axes = draw_transitions(*made(y, y, [str(i) for i in range(2 * MAX_MATRIX_LINES + 1)])).axes[0]
    assert axes.images[1].get_array().shape == (MAX_MATRIX_LINES, MAX_MATRIX_LINES)
    assert np.allclose(np.diag(axes.images[1].get_array()), 1)


def test_groups_split_the_largest_first():
    paths = [("r", "a", str(i)) for i in range(20)] + [("r", "b")] * 4 + [("r",)] * 0
    assert groups(paths) == [("a", 0, 19), ("b", 20, 23)]  # twenty groups of one class would be too many
    assert groups([()] * 5) == [("", 0, 4)]


def test_the_tree_passes_over_only_children():
    root = grow(sorted((path, name) for name, path in TREE.items()))
    assert root.name == "top" and [child.name for child in root.children] == ["x", "y"]
    x, y = root.children
    assert [(leaf.name, leaf.line) for leaf in x.children] == [("b", 0), ("c", 1)]  # `deep` has one child
    assert (x.line, y.line, root.line, root.height) == (0.5, 2.5, 1.5, 2)


@pytest.mark.parametrize("count", [1, 4, 700])
def test_the_tree_names_every_leaf_or_their_kinds(count):
    tree = {f"class {i}": ("root", f"kind {i % 7}") for i in range(count)}
    texts = [t.get_text().strip() for t in draw_tree(tree, list(tree)).axes[0].texts]
    want = [f"kind {k} (100 classes)" for k in range(7)] if count == 700 else list(tree)
    assert set(want) <= set(texts)


def test_the_table_tells_what_is_lost(capsys):
    names = ("whole", "gone [red]", "single", "big")
    show_noise(*made([0, 0, 1, 1, 2, 2, 3, 3, 3], [0, 0, 3, 3, 2, 3, 3, 3, 0], names))
    said = capsys.readouterr().out
    assert "4 of 9 training labels are wrong (44.44 %), in 3 of 4 classes" in said
    assert "classes without samples: 1 (gone [red])" in said
    assert "classes with one sample, so without pairs: 1 (single)" in said
    lines = [line for line in said.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == ["gone [red]", "single", "big", "whole"]  # worst first
    assert lines[2].split("│")[2:-1] and lines[2].replace(" ", "").strip("│") == "big│3│1│33│3│5"
    show_noise(*made([0, 1], [0, 1], names))
    assert "0 of 2 training labels are wrong (0.00 %)" in capsys.readouterr().out
