"""The picture of a tree of classes: every cluster a card, relatives side by side, who does not belong in red; and the table."""

import math
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Hierarchy
from PIL import Image, ImageColor

from likewise.core.render.gallery import EDGE_PIXELS, PAPER_COLOUR, WRONG_COLOUR
from likewise.score import learned_hierarchy as hierarchy
from likewise.score.learned_hierarchy import (
    CARD_COLOUR,
    CARD_COLUMNS,
    GAP_PIXELS,
    HEAD_PIXELS,
    MAX_CARD_CLASSES,
    MAX_CARDS,
    PAD_PIXELS,
    PARENT_PIXELS,
    RULE_COLOUR,
    TILE_PIXELS,
    Agreement,
    Card,
    Leaf,
    LearnedHierarchy,
    draw_hierarchy,
    figure_lines,
    in_chain,
    into_columns,
    make_cards,
    name_cluster,
    show_hierarchy,
    wrapped,
)

TOP = 60 + 17  # of the cards, below a title and one line


def learned(levels, comparison=(), names=None):
    levels = [np.asarray(level) for level in levels]
    names = names or tuple(f"class {c}" for c in range(len(levels[0])))
    return LearnedHierarchy("by hand", names, levels, list(comparison), [], Path("tree.png"))


def around(angles):
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def blank(colour="#808080"):
    return Image.new("RGB", (30, 20), colour)


def colour_at(page, card_left, place, at):
    """The pixel `at` = (x, y) inside the picture number `place` of a card in the first line of cards."""
    line, across = divmod(place, CARD_COLUMNS)
    assert line == 0
    return page.getpixel(
        (card_left + PAD_PIXELS + across * (TILE_PIXELS + GAP_PIXELS) + at[0], TOP + HEAD_PIXELS + at[1])
    )


def test_neighbours_in_the_chain_are_similar():
    angles = np.random.default_rng(0).permutation(np.linspace(0, 2, 20) ** 2 / 2)
    order = in_chain(around(angles))
    steps = np.diff(angles[order])
    assert sorted(order) == list(range(20)) and ((steps > 0).all() or (steps < 0).all())
    assert in_chain(around(angles[:2])).tolist() == [0, 1] and in_chain(around(angles[:1])).tolist() == [0]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([("x", "a"), ("x", "b"), ("x", "b")], (("x", "b"), "b", "2 of 3 classes, cluster 7")),
        ([("x", "a"), ("x", "b")], ((), "cluster 7", "2 classes")),  # half is no majority
        ([("x", "b"), ("y", "b"), ("z", "b")], ((), "cluster 7", "3 classes")),  # one name, three groups
        ([(), ()], ((), "cluster 7", "2 classes")),
    ],
)
def test_a_cluster_is_named_by_its_majority(groups, says):
    assert name_cluster("cluster 7", groups) == says


def test_cards_hold_the_classes_of_a_cluster_and_mark_who_does_not_belong():
    angles = np.array([0.0, 0.1, 0.2, 2.0, 2.1, 1.0])
    paths = [("a",), ("a",), ("b",), ("b",), ("c",), ("c",)]
    found = learned([[5, 5, 5, 0, 0, 3]], [Agreement(1, 3, 1, 3, 0.5, 0.6)])
    cards = {card.title: card for card in make_cards(found, paths, around(angles), lambda c: None)}
    leaves = {title: sorted(leaf[:1] + leaf[2:] for leaf in card.leaves) for title, card in cards.items()}
    assert leaves == {
        "a": [("class 0", "", False), ("class 1", "", False), ("class 2", "b", True)],
        "cluster 0": [("class 3", "b", False), ("class 4", "c", False)],  # a mixture: everybody says what he is
        "c": [("class 5", "", False)],
    }
    titles = list(cards)
    assert titles.index("c") == 1  # between the two others, as on the circle
    assert all(card.parent == "" and card.more == 0 for card in cards.values())


def test_a_class_without_ancestors_does_not_belong_to_a_group():
    found = learned([[0, 0, 0, 0]], [Agreement(1, 1, 1, 2, 0.5, 0.75)])
    (card,) = make_cards(found, [("a",), ("a",), ("a",), ()], around(np.arange(4.0)), lambda c: None)
    assert sorted((leaf.name, leaf.odd) for leaf in card.leaves)[-1] == ("class 3", True)


def test_without_a_known_tree_clusters_go_by_their_numbers():
    cards = make_cards(learned([[2, 2, 9]]), [()] * 3, around(np.arange(3.0)), lambda c: None)
    assert [(card.title, card.detail) for card in cards] == [("cluster 2", "2 classes"), ("cluster 9", "1 class")]
    assert not any(leaf.group or leaf.odd for card in cards for leaf in card.leaves)


def test_cards_stand_below_their_parents():
    angles = np.array([0.0, 1.0, 2.0, 0.05, 1.05, 2.05])
    fine, coarse = [0, 1, 2, 3, 1, 2], [0, 1, 1, 0, 1, 1]
    cards = make_cards(learned([fine, coarse]), [()] * 6, around(angles), lambda c: None)
    assert [(card.title, card.parent) for card in cards] == [
        ("cluster 0", "level 2 cluster 0, 2 classes"), ("cluster 3", "level 2 cluster 0, 2 classes"),
        ("cluster 1", "level 2 cluster 1, 4 classes"), ("cluster 2", "level 2 cluster 1, 4 classes"),
    ]  # fmt: skip


def test_many_classes_and_clusters_are_cut_and_counted():
    classes = (
        np.repeat(np.arange(MAX_CARDS + 5), 2).tolist() + [0] * MAX_CARD_CLASSES
    )  # cluster 0 has two more than room
    cards = make_cards(learned([classes]), [()] * len(classes), around(np.arange(len(classes)) / 50), lambda c: None)
    assert len(cards) == MAX_CARDS
    big = next(card for card in cards if card.title == "cluster 0")
    assert (len(big.leaves), big.more) == (MAX_CARD_CLASSES - 1, 3)
    assert "the 40 largest shown" in figure_lines(learned([classes]))[0]
    full = make_cards(
        learned([[0] * MAX_CARD_CLASSES + [1]]),
        [()] * (MAX_CARD_CLASSES + 1),
        around(np.arange(MAX_CARD_CLASSES + 1) / 9),
        lambda c: None,
    )
    assert max((len(card.leaves), card.more) for card in full) == (MAX_CARD_CLASSES, 0)


def test_columns_keep_the_order_and_never_overlap():
    rng = np.random.default_rng(0)
    heights = rng.integers(60, 300, 30).tolist()
    parents = ["a"] * 11 + ["b"] * 2 + ["c"] * 17
    columns = into_columns(parents, heights, 3)
    assert [place for column in columns for place, _ in column] == list(range(30)) and len(columns) == 3
    for column in columns:
        end, above = 0, ""
        for place, down in column:
            assert down >= end + (PARENT_PIXELS if parents[place] != above else 0)  # room for the parent's name
            end, above = down + heights[place], parents[place]
        assert end < 1.35 * sum(heights) / 3


def test_who_is_odd_has_a_red_frame_and_pictures_stand_in_their_places():
    leaves = [Leaf("one", blank("#0000ff")), Leaf("two", blank("#00ff00"), "other", True), Leaf("three", None)]
    page = draw_hierarchy([Card("first", "3 classes", leaves), Card("second", "none", leaves[:1])], "title", ["words"])
    wide = 2 * PAD_PIXELS + CARD_COLUMNS * (TILE_PIXELS + GAP_PIXELS) - GAP_PIXELS
    assert page.width == 2 * EDGE_PIXELS + 2 * wide + GAP_PIXELS
    middle = (TILE_PIXELS // 2, TILE_PIXELS // 2)
    assert colour_at(page, EDGE_PIXELS, 0, middle) == (0, 0, 255) and colour_at(page, EDGE_PIXELS, 1, middle) == (
        0,
        255,
        0,
    )
    assert colour_at(page, EDGE_PIXELS + wide + GAP_PIXELS, 0, middle) == (0, 0, 255)
    frames = [colour_at(page, EDGE_PIXELS, place, (0, TILE_PIXELS // 2)) for place in range(3)]
    assert frames == [ImageColor.getrgb(colour) for colour in (RULE_COLOUR, WRONG_COLOUR, RULE_COLOUR)]
    assert colour_at(page, EDGE_PIXELS, 3, middle) == ImageColor.getrgb(CARD_COLOUR)
    assert page.getpixel((EDGE_PIXELS // 2, TOP + HEAD_PIXELS)) == ImageColor.getrgb(PAPER_COLOUR)


def test_names_alone_take_less_room():
    cards = [Card("one", "", [Leaf("a name", None)] * 4, more=2)] * 3
    seen = [Card("one", "", [Leaf("a name", blank())] * 4, more=2)] * 3
    assert draw_hierarchy(cards, "title", []).height < draw_hierarchy(seen, "title", []).height - TILE_PIXELS


def test_the_largest_picture_can_be_looked_at():
    leaf = Leaf("a rather long name_of a class", blank(), "and of a rather long group", True)
    cards = [
        Card("title " * 40, "detail " * 40, [leaf] * (MAX_CARD_CLASSES - 1), 99, f"parent {n // 4}")
        for n in range(MAX_CARDS)
    ]
    page = draw_hierarchy(cards, "title " * 99, ["words " * 99] * 2)
    assert page.width <= 2000 and page.height < 4000
    seen = np.asarray(page).astype(int)
    assert (seen[:, -EDGE_PIXELS // 2 :] == 255).all()  # nothing runs out of its column


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("wren", ["wren"]),
        ("Black_footed_Albatross", ["Black_footed_", "Albatross"]),
        ("", []),
        ("an unbelievablyverylongwordthatnobodycanread", ["an", "unbelievabl…"]),
        ("one two three four five six seven eight nine ten", ["one two three", "four five six", "seven eight…"]),
    ],
)
def test_names_are_broken_where_they_can_be(name, lines):
    """Another version of the font library may leave room for the space before the dots."""
    assert [line.replace(" …", "…") for line in wrapped(name, hierarchy.font_of(10), 3)] == lines


def test_the_table_and_the_words(capsys):
    rows = [Agreement(1, 23, 2, 18, 0.4567, 0.5), Agreement(2, 5, 1, 8, math.nan, 1.0)]
    show_hierarchy(learned([[0, 1]], rows), Hierarchy("run"))
    out = capsys.readouterr().out
    assert "0.457" in out and "50.0 %" in out and "nan" in out
    assert "clusters: by hand" in out and "figure: tree.png" in out
    show_hierarchy(learned([[0, 1]]), Hierarchy("run"))
    assert "AMI" not in capsys.readouterr().out
    assert (
        "AMI 0.46, purity 50%" in figure_lines(learned([[0, 1]], rows))[1] and len(figure_lines(learned([[0, 1]]))) == 1
    )
