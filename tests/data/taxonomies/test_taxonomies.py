"""Class trees: the shipped ones hold what they say, files are read, and mistakes are explained."""

import json
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.data.taxonomies import NAMES, class_tree, known, taxonomy


def test_the_birds():
    tree = taxonomy("cub200")
    assert len(tree) == 200 and {path[0] for path in tree.values()} == {"bird"}
    assert tree["Laysan_Albatross"] == ("bird", "aquatic_bird", "seabird", "pelagic_bird", "albatross")
    assert tree["Ovenbird"][-2:] == ("New_World_warbler", "ovenbird")
    assert sum(path[-1] == "New_World_warbler" for path in tree.values()) == 21
    assert (min(map(len, tree.values())), max(map(len, tree.values()))) == (3, 8)


def test_the_cars():
    types, deep = taxonomy("cars196-type"), taxonomy("cars196-deep")
    assert types["Ram C/V Cargo Van Minivan 2012"] == types["Ram C-V Cargo Van Minivan 2012"] == ("car", "minivan")
    assert Counter(path[1] for name, path in types.items() if "/" not in name) == {
        "sedan": 50, "SUV": 35, "coupe": 33, "convertible": 26, "pickup": 18, "hatchback": 14, "wagon": 7, "van": 7,
        "minivan": 6,
    }  # fmt: skip
    assert deep["Audi S4 Sedan 2012"] == ("car", "sedan", "Audi", "S4") == deep["Audi S4 Sedan 2007"]
    assert all(deep[name][:2] == path for name, path in types.items())


def test_the_notice_of_wordnet_comes_along():
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in files("likewise.data.taxonomies").joinpath(
        "WORDNET.txt"
    ).read_text("utf-8")


def test_known_is_the_part_about_these_classes():
    assert known("cub200", ["Mallard", "Unicorn"]) == {"Mallard": taxonomy("cub200")["Mallard"]}
    assert known("cub200", ["Unicorn"]) is None


def test_files(tmp_path):
    tree = {"a ü": ("top", "low"), "b": ("top",), "c": ()}
    (tmp_path / "t.json").write_text(json.dumps(tree), "utf-8")
    (tmp_path / "t.csv").write_text('class_name,coarse,fine\na ü,top, low\nb,top,\n\n"c"\n', "utf-8")
    assert taxonomy(str(tmp_path / "t.json")) == taxonomy(str(tmp_path / "t.csv")) == tree


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.json", "{", r"t\.json is not JSON"),
        ("t.json", "[1]", r'must hold \{"class": \["coarsest", \.\.\., "finest"\]\}'),
        ("t.json", '{"a": "top"}', r"ancestors of 'a' in t\.json must be a list of names, coarsest first, got 'top'"),
        ("t.csv", "a,b\na,c\n", r"a class must be in t\.csv once, but 'a' is repeated in line 2"),
        ("t.csv", "a;top\nb;top\n", r"cells in t\.csv must be separated by commas, got semicolons"),
        ("t.csv", "class_name,one\n", r"t\.csv must hold a class and its ancestors in every line, but it is empty"),
        ("t.csv", 'a,"b\n', r"t\.csv is not CSV in UTF-8"),
    ],
)
def test_bad_files(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(LikewiseError, match=says):
        taxonomy(str(tmp_path / name))


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(LikewiseError, match=r"no tree 'cub20'; did you mean 'cub200'"):
        taxonomy("cub20")
    with pytest.raises(LikewiseError, match=r"no tree 'away\.json'; .*\(cub200, cars196"):
        taxonomy("away.json")
    assert all(taxonomy(name) for name in NAMES)


PATHS = [("animal", "cat"), ("animal", "cat"), ("animal", "dog", "hound"), ("animal",), ("plant", "dog"), ()]


def test_groups_heights_and_depths_by_hand():
    tree = class_tree(PATHS)
    assert tree.levels == 3 and tree.root == 0
    assert tree.group.tolist() == [
        [0, 0, 0, 0, 1, -1],
        [0, 0, 1, -1, 2, -1],  # the dog below plant is another node than the dog below animal
        [-1, -1, 0, -1, -1, -1],
    ]
    assert tree.depth.tolist() == [3, 3, 4, 2, 3, 1]
    # the root has height 4 (root, animal, dog, hound, class 2), animal 3, cat 1, plant 2
    assert tree.height.tolist() == [
        [4, 3, 1, 0, 0],
        [4, 3, 1, 0, 0],
        [4, 3, 2, 1, 0],
        [4, 3, 0, 0, 0],
        [4, 2, 1, 0, 0],
        [4, 0, 0, 0, 0],
    ]


def test_a_group_that_all_classes_share_is_above_the_root():
    tree, below = class_tree([("bird", "gull"), ("bird", "tern")]), class_tree([("gull",), ("tern",)])
    assert (tree.root, below.root) == (1, 0)
    assert np.array_equal(tree.depth, below.depth) and np.array_equal(tree.height, below.height)


def test_a_tree_without_ancestors():
    tree = class_tree([(), ()])
    assert tree.levels == 0 and tree.depth.tolist() == [1, 1] and tree.height.tolist() == [[1, 0], [1, 0]]
