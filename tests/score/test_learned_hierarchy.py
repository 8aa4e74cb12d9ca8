"""The tree of a run's classes: clusters of its loss or k-means, beside the known tree, as files, a figure and a table."""

import csv
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from likewise.config import Hierarchy, Train
from likewise.types import LikewiseError
from PIL import Image, ImageColor
from sklearn.metrics import adjusted_mutual_info_score

from likewise.cli import main as cli
from likewise.core.render.gallery import EDGE_PIXELS, PAPER_COLOUR, WRONG_COLOUR
from likewise.data.taxonomies import taxonomy
from likewise.learn.training.fit import train
from likewise.score import learned_hierarchy as stage
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
    class_directions,
    compare,
    draw_hierarchy,
    figure_lines,
    hierarchy,
    in_chain,
    into_columns,
    make_cards,
    name_cluster,
    show_hierarchy,
    wrapped,
)

CPU = {"device": "cpu", "quiet": True, "workers": 0}


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """Nine training classes in three families that features tell apart, and three classes that test; and their tree."""
    folder, rng, y = tmp_path_factory.mktemp("families"), np.random.default_rng(0), np.repeat(np.arange(12), 8)
    family = np.arange(12) % 3
    x = 6 * np.eye(8)[family[y]] + rng.normal(size=(12, 8))[y] + 0.3 * rng.normal(size=(len(y), 8))
    names = np.array([f"c{c:02d}" for c in range(12)])
    split = np.where(y < 9, "train", "test")
    np.savez(folder / "x.npz", x=x.astype(np.float32), label=y, class_name=names[y], split=split)
    tree = {name: ["all", f"family {family[c]}"] for c, name in enumerate(names)}
    (folder / "tree.json").write_text(json.dumps(tree))
    return folder


def learn(families, out, loss="ProxyAnchor()", **more):
    settings = {
        "data": str(families / "x.npz"), "out": str(out), "sampler": "SamplesPerClass(batch=24, per_class=4)", "dim": 4,
        "steps": 30, "lr": 3e-2, "loss_lr": 0.1, "evaluate": False, "quiet": True, "device": "cpu",
    }  # fmt: skip
    return train(Train(loss=loss, **settings | more))


@pytest.fixture(scope="module")
def plain(families, tmp_path_factory):
    return learn(families, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture
def own(plain, tmp_path):
    """A copy of the plain run whose loss holds clusters, written by hand; `own(name=tensor)` changes them."""
    run = type(plain)(shutil.copytree(plain.path, tmp_path / "own"))
    clusters = {"cluster_1": [3, 1, 0, 3, 1, 0, 3, 2, 0], "cluster_2": [0, 0, 0, 1], "begun": 1.0}

    def write(**changes):
        tensors = run.load_tensors("model.safetensors")
        kept = {key: value for key, value in tensors.items() if not key.startswith("loss.")}
        held = {f"loss.{key}": torch.as_tensor(value) for key, value in (clusters | changes).items()}
        run.save_tensors("model.safetensors", kept | held)
        return run

    return write


def test_class_means_and_the_samples_nearest_to_them_by_hand():
    z = torch.nn.functional.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    y = torch.arange(40) % 7
    mean, typical = class_directions(z, y)
    for c in range(7):
        rows = [i for i in range(40) if i % 7 == c]
        total = sum(z[i] for i in rows)
        assert torch.allclose(mean[c], total / total.norm(), atol=1e-6)
        assert typical[c] == max(rows, key=lambda i: float(z[i] @ total))


def test_the_comparison_by_hand():
    cluster = [np.array([0, 0, 0, 5, 5, 2]), np.array([1, 1, 1, 1, 1, 4])]
    paths = [("r", "a", "p"), ("r", "a", "q"), ("r", "b"), ("r", "b"), ("r", "b"), ("r", "c")]
    found = compare(cluster, paths)
    # The root tells nobody apart. Shorter paths stand with their last ancestor: at depth 3, p q b b b c.
    assert [one[:4] for one in found] == [(1, 3, 2, 3), (1, 3, 3, 4), (2, 2, 2, 3), (2, 2, 3, 4)]
    assert [one.purity for one in found] == pytest.approx([5 / 6, 4 / 6, 4 / 6, 4 / 6])
    for one in found:
        known = ["/".join(path[: one.depth]) for path in paths]
        assert one.ami == pytest.approx(adjusted_mutual_info_score(cluster[one.level - 1], known))
    same = compare([np.array([4, 4, 0, 0, 0, 1])], paths)[0]
    assert (same.ami, same.purity) == (pytest.approx(1), 1)
    assert compare(cluster, [()] * 6) == []
    # Two groups of one name under two parents are two groups.
    assert compare(cluster[:1], [("x", "s"), ("y", "s")] * 3)[1].groups == 2


def test_any_run_is_grouped_by_its_class_means(plain, families, tmp_path):
    out = tmp_path / "new" / "folder"
    tree = str(families / "tree.json")
    found = hierarchy(Hierarchy(str(plain.path), clusters=3, taxonomy=tree, out=str(out), **CPU))
    assert found.class_names == tuple(f"c{c:02d}" for c in range(9))  # those that train
    assert len({*found.levels[0][:3]}) == 3 and np.array_equal(found.levels[0][:3], found.levels[0][3:6])
    assert [one[:4] for one in found.comparison] == [(1, 3, 2, 3)] and found.comparison[0].ami == pytest.approx(1)
    assert found.picture == out / "hierarchy.png" and Image.open(found.picture).width > 900
    about = json.loads((out / "hierarchy.json").read_text())
    assert about["comparison"] == [one._asdict() for one in found.comparison]
    assert about["classes"]["c04"] == [f"level 1 cluster {found.levels[0][4]}"]
    # What was written is a tree itself, and agrees with itself.
    again = hierarchy(Hierarchy(str(plain.path), clusters=3, taxonomy=str(out / "hierarchy.csv"), out=str(out), **CPU))
    assert again.comparison[0].ami == pytest.approx(1) and np.array_equal(again.levels[0], found.levels[0])


def test_without_a_known_tree_it_is_drawn_all_the_same(plain, capsys):
    cli.main(["hierarchy", str(plain.path), "--device", "cpu"])
    out = capsys.readouterr().out
    assert "no taxonomy to compare with; give one with --taxonomy" in out and "AMI" not in out
    assert "by k-means" in out and (plain.path / "hierarchy.png").exists()
    with (plain.path / "hierarchy.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["class_name", "level_1"] and len({row[1] for row in rows[1:]}) == 2 and len(rows) == 10


def test_clusters_of_the_loss_are_taken_as_they_are(own, families):
    run = own()
    found = hierarchy(Hierarchy(str(run.path), taxonomy=str(families / "tree.json"), **CPU))
    assert found.levels[0].tolist() == [3, 1, 0, 3, 1, 0, 3, 2, 0]
    assert found.levels[1].tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0]
    assert [one[:4] for one in found.comparison] == [(1, 4, 2, 3), (2, 2, 2, 3)]
    assert found.comparison[0].purity == 1 and found.comparison[1].purity == pytest.approx(6 / 9)
    assert taxonomy(str(run.path / "hierarchy.csv"))["c07"] == ("level 2 cluster 0", "level 1 cluster 2")
    other = {"clusters": 3}, {"checkpoint": "untrained"}
    for question, how in zip(other, ("k-means.* in its best network", "k-means.* before training")):
        with pytest.raises(LikewiseError, match="this is another tree; .*--out FOLDER"):
            hierarchy(Hierarchy(str(run.path), **question, **CPU))
        asked = hierarchy(Hierarchy(str(run.path), out=str(run.path / "other"), **question, **CPU))
        assert len(asked.levels) == 1 and re.search(how, asked.how)
        assert re.search(how, json.loads((run.path / "other" / "hierarchy.json").read_text())["how"])
    assert taxonomy(str(run.path / "hierarchy.csv"))["c07"] == ("level 2 cluster 0", "level 1 cluster 2")
    (run.path / "file").touch()
    with pytest.raises(LikewiseError, match="--out must be a folder, got .*file"):
        hierarchy(Hierarchy(str(run.path), out=str(run.path / "file"), **CPU))


def test_what_a_damaged_or_unfinished_run_says(own, families):
    run = own()
    (run.path / "done").unlink()
    assert (
        "this run is not finished, so this is its last checkpoint" in hierarchy(Hierarchy(str(run.path), **CPU)).notes
    )
    (families / "flat.csv").write_text("".join(f"c{c:02d},all\n" for c in range(12)))
    found = hierarchy(Hierarchy(str(run.path), taxonomy=str(families / "flat.csv"), **CPU))
    assert found.comparison == [] and "the taxonomy puts all classes into one group" in found.notes[-1]
    tensors = run.load_tensors("model.safetensors")
    run.save_tensors("model.safetensors", {k: v * torch.nan if "head" in k else v for k, v in tensors.items()})
    with pytest.raises(LikewiseError, match="must return finite embeddings"):
        hierarchy(Hierarchy(str(run.path), **CPU))


def test_pictures_of_the_classes_are_shown(picture_run):
    found = hierarchy(Hierarchy(str(picture_run.path), **CPU))
    seen = np.asarray(Image.open(found.picture)).reshape(-1, 3).astype(int)
    for colour in [(200, 40, 40), (40, 200, 40), (40, 40, 200)]:
        assert (np.abs(seen - colour).max(1) < 45).sum() > 1000
    assert (np.abs(seen - (40, 200, 200)).max(1) < 45).sum() < 100  # a class that tests


def test_labels_are_those_that_it_trained_with(families, tmp_path, monkeypatch):
    run = learn(families, tmp_path / "noisy", noise="Uniform(share=0.5)", steps=2)
    labels = []
    monkeypatch.setattr(stage, "class_directions", lambda z, y: (labels.append(y), class_directions(z, y))[1])
    hierarchy(Hierarchy(str(run.path), clusters=3, **CPU))
    assert (labels[0].numpy() != np.repeat(np.arange(9), 8)).sum() == 36


def test_a_training_with_a_hierarchy_of_its_own(families, tmp_path):
    loss = "Hierarchical(loss=ProxyAnchor(), coarse=(4, 2), every=5, start=10)"
    run = learn(families, tmp_path / "learned", loss)
    held = run.load_tensors("model.safetensors")
    found = hierarchy(Hierarchy(str(run.path), taxonomy=str(families / "tree.json"), **CPU))
    first, second = (held[f"loss.cluster_{n}"].numpy() for n in (1, 2))
    assert np.array_equal(found.levels[0], first) and np.array_equal(found.levels[1], second[first])
    run.save_tensors("best.safetensors", held | {"loss.begun": torch.zeros(())})
    with pytest.raises(LikewiseError, match="first clustering; use --checkpoint last"):
        hierarchy(Hierarchy(str(run.path), **CPU))
    assert np.array_equal(hierarchy(Hierarchy(str(run.path), checkpoint="last", **CPU)).levels[0], first)
    run.save_tensors("model.safetensors", held | {"loss.begun": torch.zeros(())})
    with pytest.raises(LikewiseError, match="training ended before; train longer"):
        hierarchy(Hierarchy(str(run.path), **CPU))
    assert hierarchy(Hierarchy(str(run.path), clusters=2, out=str(tmp_path / "o"), **CPU)).levels[0].max() == 1


def test_damaged_clusters_are_named(own):
    first = [0, 1, 2], [[0] * 9], [-1] * 9, [0.5] * 9, [9] * 9
    second = [0, 1], [10**12] * 4, torch.zeros(0, dtype=torch.int64)
    for name, wrong in [*(("cluster_1", one) for one in first), *(("cluster_2", one) for one in second)]:
        with pytest.raises(LikewiseError, match=f"loss.{name} in .* must hold a cluster .* is damaged"):
            hierarchy(Hierarchy(str(own(**{name: wrong}).path), **CPU))


def test_what_cannot_be_shown_is_said(plain, families, finished_pictures, tmp_path):
    run = str(plain.path)
    (tmp_path / "other.json").write_text('{"c00": ["a"]}')
    cases = {
        "is not a run folder": {"run": str(tmp_path)},
        "at least 2 and less than the 9 training classes, got 9; change it": {"clusters": 9},
        "less than the 9 training classes, got 1": {"clusters": 1},
        "there is no tree 'cub20'; did you mean 'cub200'": {"taxonomy": "cub20"},
        "hierarchy: 8 of 9 classes are not in the tree": {"taxonomy": str(tmp_path / "other.json")},
        "neither a known name nor an existing path": {"data": str(tmp_path / "gone.npz")},
        "must be the data that '.*' was trained with": {"data": finished_pictures.about["config"]["data"]},
    }
    for words, settings in cases.items():
        with pytest.raises(LikewiseError, match=words):
            hierarchy(Hierarchy(**{"run": run} | settings, **CPU))
    data = shutil.copy(families / "x.npz", tmp_path / "x.npz")
    moved = learn(families, tmp_path / "moved", data=str(data), steps=1)
    data = shutil.move(data, tmp_path / "y.npz")
    with pytest.raises(LikewiseError, match="give its location: --data, --root"):
        hierarchy(Hierarchy(str(moved.path), **CPU))
    assert hierarchy(Hierarchy(str(moved.path), data=str(data), **CPU)).picture.exists()


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
    assert [line.replace(" …", "…") for line in wrapped(name, stage.font_of(10), 3)] == lines


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
