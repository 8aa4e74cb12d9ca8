"""The noise command: a table that trains as it is, true labels kept apart, pictures beside it."""

import json

import numpy as np
import pytest
from likewise.config import Noise, Train
from likewise.noise import Uniform
from likewise.protocols import SeenClasses, StratifiedLabels, UnseenClasses
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.cli import main as cli
from likewise.data import load
from likewise.data.dataset import inject_noise
from likewise.data.noisy_table import (
    MAX_MATRIX_LINES,
    MAX_NAMED_CLASSES,
    draw_transitions,
    draw_tree,
    groups,
    grow,
    noise,
    show_noise,
)
from likewise.learn.training.fit import train

SEMANTIC = "Semantic(share=0.25)"


@pytest.fixture
def tree(tmp_path):
    """A tree of the six classes of pictures; the first three train, two of them relatives."""
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({f"{c} färg": ["warm" if c in (0, 1, 3) else "cold"] for c in range(6)}))
    return str(file)


def test_the_table_trains_and_keeps_the_true_labels(pictures, tree, small, tmp_path):
    out = tmp_path / "noisy ü.csv"
    spoiled = noise(Noise(data=str(pictures), model=SEMANTIC, out=str(out), taxonomy=tree))
    source, items = load(str(pictures)), load(str(out))
    train_rows = UnseenClasses().rows(source, "train")
    assert items.class_name == source.class_name and np.array_equal(items.y_clean, source.y)
    assert np.array_equal(spoiled.rows, train_rows) and np.array_equal(UnseenClasses().rows(items, "train"), train_rows)
    wrong = items.y != items.y_clean
    assert wrong[train_rows].sum() == round(0.25 * 18) and not np.delete(wrong, train_rows).any()
    assert all(Image.open(file).size[0] > 300 for file in spoiled.figures)
    assert [file.name for file in spoiled.figures] == ["noisy ü.png", "noisy ü_tree.png"]
    run = train(Train(data=str(out), out=str(tmp_path / "run"), evaluate=False, **small | {"steps": 2}))
    assert (run.path / "done").exists()


def test_the_same_labels_as_training_with_noise(features, tmp_path):
    out = tmp_path / "noisy.parquet"
    protocol = UnseenClasses(val=0.25)
    noise(Noise(features, "Uniform(share=0.4)", str(out), seed=3, protocol="UnseenClasses(val=0.25)"))
    source, items = load(features), load(str(out))
    want = inject_noise(source, protocol, "Uniform(share=0.4)", 3, False)
    assert np.array_equal(items.y, want.y) and np.array_equal(items.x, source.x)
    for part in ("train", "val", "test"):  # fixed by the true labels, whatever the wrong ones say
        assert np.array_equal(np.flatnonzero(items.split == part), protocol.rows(source, part))
    noise(Noise(features, "Uniform(share=0.4)", str(out), seed=4, protocol="UnseenClasses(val=0.25)"))
    assert not np.array_equal(load(str(out)).y, want.y)


def test_without_the_wrong_rows(pictures, tmp_path):
    model, whole, right = "Uniform(share=0.5)", tmp_path / "whole.csv", tmp_path / "right.csv"
    noise(Noise(str(pictures), model, str(whole), seed=3))
    spoiled = noise(Noise(str(pictures), model, str(right), seed=3, drop_wrong=True))
    whole, right = load(str(whole)), load(str(right))
    kept = np.flatnonzero(whole.y == whole.y_clean)
    assert right.y_clean is None and len(right) == len(kept) == 36 - 9
    assert right.path == tuple(whole.path[row] for row in kept) and right.split.tolist() == whole.split[kept].tolist()
    assert [right.class_name[c] for c in right.y] == [whole.class_name[c] for c in whole.y_clean[kept]]
    assert (right.split == "test").sum() == 18
    assert (spoiled.items.y != spoiled.items.y_clean).sum() == 9  # what is told of is the noise itself


def test_a_closed_set(features, tmp_path):
    out = tmp_path / "noisy.parquet"
    noise(Noise(features, "ClassShift(share=0.2)", str(out), protocol="SeenClasses(gallery='train')"))
    items = load(str(out))
    wrong = items.y != items.y_clean
    assert wrong.any() and set(items.split[wrong]) == {"train"} and (items.split == "test").any()
    rows = SeenClasses().rows(load(features), "train")
    assert np.array_equal(SeenClasses(own_split=True).rows(items, "train"), rows)


def test_lost_classes_keep_their_number_and_name(pictures, tmp_path):
    x = np.random.default_rng(0).normal(size=(36, 3))
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "noisy.csv"
    model = f"SmallCluster(features={str(tmp_path / 'x.npy')!r}, share=0.3)"
    spoiled = noise(Noise(str(pictures), model, str(out), root=None))
    items = load(str(out))
    assert len(set(spoiled.items.y)) == 5 and items.class_name == load(str(pictures)).class_name


def test_pictures_below_the_table_are_found_from_it(pictures, tmp_path):
    noise(Noise(str(pictures), "Uniform()", str(pictures.parent / "beside.csv")))
    items = load(str(pictures.parent / "beside.csv"))
    assert items.path[0].startswith("my pictures ü")
    (pictures.parent / "beside.csv").unlink()
    noise(Noise(str(pictures), "Uniform()", str(tmp_path / "away.csv")))
    assert load(str(tmp_path / "away.csv")).path[0] == str(pictures / "0 färg" / "bild 0.png")


def test_the_command_tells_what_changed(pictures, tree, tmp_path, capsys):
    words = ["noise", str(pictures), "--model", SEMANTIC, "--taxonomy", tree, "--out", str(tmp_path / "n.csv")]
    cli.main(words)
    said = capsys.readouterr().out
    assert "4 of 18 training labels are wrong (22.22 %)" in said and "0 färg" in said
    assert f"table: {tmp_path / 'n.csv'}\nfigure: {tmp_path / 'n.png'}\nfigure: {tmp_path / 'n_tree.png'}" in said
    cli.main([*words, "--quiet"])
    assert capsys.readouterr().out == ""


def test_bad_input(pictures, features, tmp_path):
    out = str(tmp_path / "n.csv")
    noise(Noise(str(pictures), "Uniform()", out))
    with pytest.raises(LikewiseError, match="got a table with `label_clean`"):
        noise(Noise(out, "Uniform()", str(tmp_path / "m.csv")))
    with pytest.raises(LikewiseError, match="--out must not be the data itself"):
        noise(Noise(out, "Uniform()", str(tmp_path / "." / "n.csv"), drop_wrong=True))
    with pytest.raises(LikewiseError, match="the data has none; name one"):
        noise(Noise(str(pictures), "Semantic()", out))
    with pytest.raises(LikewiseError, match=r"'cub20'; did you mean 'cub200'"):
        noise(Noise(str(pictures), "Semantic()", out, taxonomy="cub20"))
    with pytest.raises(LikewiseError, match=r"noise: --out must end in \.csv"):
        noise(Noise(str(pictures), "Uniform()", "table.txt"))
    with pytest.raises(LikewiseError, match=r"write n\.parquet instead"):
        noise(Noise(features, "Uniform()", out))
    with pytest.raises(LikewiseError, match="a UnseenClasses, but a NoiseModel"):
        noise(Noise(str(pictures), "UnseenClasses()", out))


@pytest.mark.parametrize("model", ["DropLabels(share=0.2)", "AddLabels(share=0.2)", "Uniform(share=0.2)"])
def test_several_labels(tmp_path, capsys, model):
    """The table has the true labels, the same wrong ones as a training with noise, and the splits of the clean data."""
    rng, names = np.random.default_rng(0), "abcdefghij"
    cells = ["|".join(rng.permutation(list(names))[: rng.integers(1, 5)]) for _ in range(80)]
    np.savez(tmp_path / "tags.npz", x=rng.normal(size=(80, 3)).astype(np.float32), labels=np.array(cells))
    out, source = tmp_path / "noisy.parquet", load(str(tmp_path / "tags.npz"))
    made = noise(Noise(str(tmp_path / "tags.npz"), model, str(out), seed=2))
    items, want = load(str(out)), inject_noise(source, StratifiedLabels(), model, 2)
    for given, expected in ((items.y, want.y), (items.y_clean, source.y)):
        assert [items.class_name[c] for c in given] == [want.class_name[c] for c in expected]
    assert np.array_equal(np.flatnonzero(items.split == "test"), StratifiedLabels().rows(source, "test"))
    assert len(made.figures) == 1
    show_noise(made.items, made.rows)
    assert "superfluous ones were added" in capsys.readouterr().out
    with pytest.raises(LikewiseError, match="must be without injected noise"):
        noise(Noise(str(out), model, str(tmp_path / "again.parquet")))


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
