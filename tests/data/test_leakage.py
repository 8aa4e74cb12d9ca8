"""Leaks planted on purpose are found, by file content or by vector, and nothing else is."""

import dataclasses
import hashlib

import numpy as np
import pytest
from likewise.protocols import SeenClasses, StratifiedLabels, UnseenClasses, UnseenLabels
from likewise.types import Items, LikewiseError

from likewise.data import leakage as module
from likewise.data.leakage import Leaks, describe_leaks, leaks, same_content


def pictures(folder, contents, split, y=None, **columns):
    names = [f"{place}.jpg" for place in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_bytes(content)
    y = np.arange(len(contents)) if y is None else np.asarray(y)
    return Items(
        "toy", y, tuple(f"c{c}" for c in range(y.max() + 1)), path=tuple(names), root=str(folder),
        split=np.array(split), **columns,
    )  # fmt: skip


def test_files_of_the_same_content_are_found_and_near_ones_are_not(tmp_path):
    big = b"x" * 9000
    contents = [b"one", big + b"!", b"?" + big, b"val", b"two", b"one", b"?" + big, b"val", big + b"!", b"!" + big]
    data = pictures(tmp_path, contents, ["train"] * 3 + ["val"] + ["test"] * 6)
    shares = []
    found = leaks(data, UnseenClasses(), shares.append)
    assert found.images == ((0, 5), (2, 6), (3, 7), (1, 8))
    assert found.classes == () and found.first == "0.jpg = 5.jpg"
    assert shares[-1] == 1.0 and shares == sorted(shares)
    digest = [hashlib.sha256(content).digest() for content in contents]
    assert {pair[1] for pair in found.images} == {row for row in range(4, 10) if digest[row] in digest[:4]}


def test_only_files_of_a_size_that_both_sides_have_are_opened_and_only_like_ends_read_whole(tmp_path, monkeypatch):
    opened = {"tail_of": [], "hash_of": []}
    for name, seen in opened.items():
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda file, real=real, seen=seen: (seen.append(file[-5]), real(file))[1])
    data = pictures(tmp_path, [b"aa", b"bbb", b"cccc", b"xb", b"bbb", b"c"], ["train"] * 3 + ["test"] * 3)
    assert leaks(data, UnseenClasses()).images == ((1, 4),)
    assert sorted(opened["tail_of"]) == ["0", "1", "3", "4"] and sorted(opened["hash_of"]) == ["1", "4"]


def test_boxes_of_one_picture_are_different_samples(tmp_path):
    box = np.array([[0, 0, 4, 4], [4, 4, 8, 8], [0, 0, 4, 4], [5, 5, 8, 8]], float)
    data = pictures(tmp_path, [b"same"] * 4, ["train", "train", "test", "test"], box=box)
    assert leaks(data, UnseenClasses()).images == ((0, 2),)


def test_vectors_and_classes():
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    x[9] = x[2]
    data = Items("toy", np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 1, 0, 3]), tuple("abcd"), x=x)
    data = dataclasses.replace(data, split=np.array(["train"] * 5 + ["val", ""] + ["test"] * 5))
    found = leaks(data, UnseenClasses())
    assert found == Leaks(("a", "b"), ((2, 9),), "row 2 = row 9", "feature vector")


def test_classes_shared_by_design_and_training_rows_that_answer_are_no_leaks():
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    data = Items("toy", np.repeat(np.arange(4), 10), tuple("abcd"), x=x)
    for gallery in ("test", "train"):
        found = leaks(data, SeenClasses(gallery=gallery, val=0.2))
        assert found.classes is None and found.images == ()
    assert describe_leaks(found) == "train and test share no feature vector"
    again = x.copy()
    held, train = SeenClasses().rows(data, "test"), SeenClasses().rows(data, "train")
    again[held[0]] = x[train[-1]]
    assert leaks(dataclasses.replace(data, x=again), SeenClasses()).images == ((train[-1], held[0]),)


def test_nothing_to_compare_by():
    data = Items("toy", np.repeat(np.arange(4), 3), tuple("abcd"))
    assert leaks(data, UnseenClasses()) == Leaks((), ())
    assert same_content(np.arange(3), np.arange(0), [lambda row: 1]) == ()


def test_a_file_that_is_gone_is_named(tmp_path):
    data = pictures(tmp_path, [b"a", b"b"], ["train", "test"])
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(LikewiseError, match=r"leaks: .*1\.jpg cannot be read"):
        leaks(data, UnseenClasses())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Leaks((), ()), "train and test share no class and no image"),
        (Leaks(None, ()), "train and test share no image"),
        (
            Leaks((), tuple((0, row) for row in range(12)), "a.jpg = b.jpg"),
            "12 images of the test split are also in training (train or val) (first: a.jpg = b.jpg)",
        ),
        (
            Leaks(("a", "b", "c", "d"), ((1, 2),), "a = b"),
            "4 classes of the test split are also in training (train or val) (a, b, c, ...); "
            "1 image of the test split is also in training (train or val) (first: a = b)",
        ),
        (Leaks(("a",), ()), "1 class of the test split is also in training (train or val) (a)"),
    ],
)
def test_one_plain_sentence(found, words):
    assert describe_leaks(found) == words


def test_labels_that_train_are_told_only_if_a_test_sample_has_no_others():
    """Sets a, a|b, b, b|c, c in rows 0 to 4; equal vectors in rows 0 and 4."""
    sets = ((0,), (0, 1), (1,), (1, 2), (2,))
    x = np.array([[0], [1], [2], [3], [0]], np.float32)
    names = tuple("|".join("abc"[label] for label in one) for one in sets)
    data = Items("toy", np.arange(5), names, x=x, label_name=("a", "b", "c"), label_sets=sets)
    split = np.array(["train", "train", "test", "test", "test"])
    found = leaks(dataclasses.replace(data, split=split), UnseenClasses())
    assert found.classes == ("b",) and found.images == ((0, 4),)  # row 2 has b alone; row 3 has c, which does not train
    assert describe_leaks(found).startswith(
        "1 label of the test split is also in training (train or val) (b); 1 feature vec"
    )
    held = leaks(data, UnseenLabels(test=0.4))
    assert held.classes == () and held.images == ((0, 4),)
    fine = leaks(dataclasses.replace(data, x=np.arange(5, dtype=np.float32)[:, None]), UnseenLabels(test=0.4))
    assert (
        describe_leaks(fine)
        == "train and test share no feature vector, and every test sample has a label that does not train"
    )
    shared = leaks(dataclasses.replace(data, split=split), StratifiedLabels())
    assert shared.classes is None and shared.images == ((0, 4),)
