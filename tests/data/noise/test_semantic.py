"""Wrong labels are those of relatives, found by walking up a class tree by hand."""

import json

import numpy as np
import pytest
from likewise.noise import Semantic
from likewise.types import LikewiseError
from scipy.stats import chisquare

from likewise.core.settings.spec import build, spec
from likewise.data.noise.semantic import Relatives
from likewise.data.taxonomies import taxonomy

TREE = {
    "herring gull": ("bird", "sea", "gull"),
    "ring gull": ("bird", "sea", "gull"),
    "arctic tern": ("bird", "sea", "tern", "arctic"),
    "robin": ("bird", "land"),
    "crow": ("bird", "land", "corvid"),
    "raven": ("bird", "land", "corvid"),
    "flicker": ("bird", "wood"),
}
NAMES = tuple(TREE)


def nested(tree):
    """The tree as nodes within nodes, a class a leaf below its last ancestor."""
    root = {}
    for name, path in tree.items():
        node = root
        for step in path:
            node = node.setdefault(("node", step), {})
        node[("class", name)] = None
    return root


def leaves(node, key):
    return {key[1]} if node is None else set().union(*(leaves(below, k) for k, below in node.items()))


def by_hand(tree, name, reading):
    """Class -> chance, from a walk down the nested tree that remembers the last node with several children."""
    node, fork = nested(tree), None
    for key in [*(("node", step) for step in tree[name]), ("class", name)]:
        if len(node) > 1:
            fork, own = node, key
        node = node[key]
    if reading == "leaf":
        others = set().union(*(leaves(below, k) for k, below in fork.items())) - {name}
        return {one: 1 / len(others) for one in others}
    children = {k: leaves(below, k) for k, below in fork.items() if k != own}
    return {one: 1 / len(children) / len(inside) for inside in children.values() for one in inside}


@pytest.mark.parametrize("reading", ["leaf", "child"])
@pytest.mark.parametrize("present", [NAMES, NAMES[:3], NAMES[2:], NAMES[::3]])
def test_relatives_by_hand(present, reading):
    tree = {name: TREE[name] for name in present}
    relatives = Relatives(list(tree.values()))
    for number, name in enumerate(present):
        others, chance = relatives.of(number, reading)
        got = {present[o]: c for o, c in zip(others, chance, strict=True)}
        assert got == pytest.approx(by_hand(tree, name, reading))


def test_what_the_readings_say_in_words():
    relatives = Relatives(list(TREE.values()))
    assert [NAMES[o] for o in relatives.of(0, "leaf")[0]] == ["ring gull"]
    assert [NAMES[o] for o in relatives.of(2, "leaf")[0]] == ["herring gull", "ring gull"]  # passes the lone tern
    assert len(relatives.of(6, "leaf")[0]) == 6  # nothing else lives in wood
    _, chance = relatives.of(6, "child")  # sea and land, one as likely as the other
    assert chance[:3].sum() == pytest.approx(0.5) and chance[3:].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("reading", ["leaf", "child"])
def test_labels_are_drawn_with_these_chances(reading):
    y = np.repeat(np.arange(7), 3000).astype(np.int32)
    noisy = Semantic(share=0.5, reading=reading, class_names=NAMES, taxonomy=TREE)(y, np.random.default_rng(0))
    assert (noisy != y).sum() == 10500 and noisy.dtype == np.int32
    for number, name in enumerate(NAMES):
        want = by_hand(TREE, name, reading)
        got = np.bincount(noisy[(y == number) & (noisy != y)], minlength=7)
        assert got.sum() == sum(got[NAMES.index(one)] for one in want)
        if len(want) > 1:
            counts = [got[NAMES.index(one)] for one in want]
            assert chisquare(counts, [sum(counts) * p for p in want.values()]).pvalue > 1e-4


def test_the_tree_is_cut_down_to_the_classes_at_hand_first():
    y = np.repeat([1, 2, 6], 20)  # without the other gull, gull and tern meet at sea
    noisy = Semantic(share=1.0, class_names=NAMES, taxonomy=TREE)(y, np.random.default_rng(0))
    assert set(noisy[:20]) == {2} and set(noisy[20:40]) == {1} and set(noisy[40:]) == {1, 2}


def test_shipped_trees_and_files_by_name(tmp_path):
    birds = taxonomy("cub200")
    names = tuple(birds)[:100]
    y = np.repeat(np.arange(100), 5)
    noisy = Semantic(share=0.4, tree="cub200", class_names=names)(y, np.random.default_rng(0))
    relatives = Relatives([birds[name] for name in names])
    sizes = [len(relatives.of(number, "leaf")[0]) for number in range(100)]
    assert (noisy != y).sum() == 200 and (min(sizes), np.median(sizes), max(sizes)) == (1, 4, 99)
    file = tmp_path / "my tree.json"
    file.write_text(json.dumps(TREE))
    part = build(f"Semantic(tree={str(file)!r})", class_names=NAMES, taxonomy={"of": ("the data",)})
    assert np.array_equal(
        part(y[:35] // 5, np.random.default_rng(3)),
        Semantic(class_names=NAMES, taxonomy=TREE)(y[:35] // 5, np.random.default_rng(3)),
    )
    assert spec(part) == f"Semantic(tree={str(file)!r})"


def test_bad_input():
    with pytest.raises(LikewiseError, match="has none; name one: tree='cub200'"):
        Semantic(class_names=NAMES)
    with pytest.raises(LikewiseError, match="must know the class names"):
        Semantic(taxonomy=TREE)
    with pytest.raises(LikewiseError, match="reading must be 'leaf' or 'child', got 'twig'"):
        build("Semantic(reading='twig')", class_names=NAMES, taxonomy=TREE)
    less = {name: path for name, path in TREE.items() if name not in ("robin", "crow")}
    with pytest.raises(LikewiseError, match="not in the tree: robin, crow"):
        Semantic(class_names=NAMES, taxonomy=less)(np.arange(7), np.random.default_rng(0))
    with pytest.raises(LikewiseError, match="at least two classes, got 1"):
        Semantic(class_names=NAMES, taxonomy=TREE)(np.zeros(4, np.int64), np.random.default_rng(0))


@pytest.mark.parametrize("reading", ["leaf", "child"])
def test_wrong_labels_have_the_probabilities(reading):
    model, y = Semantic(share=0.4, reading=reading, class_names=NAMES, taxonomy=TREE), np.repeat(np.arange(7), 5000)
    noisy, relatives = model(y, np.random.default_rng(0)), Relatives(model._paths(np.arange(7)))
    table = 0.6 * np.eye(7)
    for c in range(7):
        others, chance = relatives.of(c, reading)
        table[c, others] = 0.4 * chance
    for c in range(7):
        count, expected = np.bincount(noisy[y == c], minlength=7), 5000 * table[c]
        assert (count[expected == 0] == 0).all()
        assert chisquare(count[expected > 0], expected[expected > 0] / expected.sum() * count.sum()).pvalue > 1e-4
