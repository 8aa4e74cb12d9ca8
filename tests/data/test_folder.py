import os

import pytest

from likewise.data.folder import read_folder
from likewise.types import LikewiseError


def test_sub_folders_are_classes(draw, tmp_path):
    for name in (
        "b/2.png",
        "b/deep/er/1.JPG",
        "a/x.jpeg",
        "a/._x.jpeg",
        "a/.hidden/y.png",
        ".git/z.png",
        "__MACOSX/z.png",
    ):
        draw(name)
    (tmp_path / "a/notes.txt").write_text("no picture")
    (tmp_path / "empty").mkdir()
    items = read_folder(str(tmp_path))
    assert items.class_name == ("a", "b")
    assert items.path == ("a/x.jpeg", "b/2.png", "b/deep/er/1.JPG")
    assert items.y.tolist() == [0, 1, 1]
    assert items.root == str(tmp_path)
    assert items.name == tmp_path.name
    assert items.split is None


def test_train_val_test_are_splits(draw, tmp_path):
    for name in ("train/b/1.png", "train/a/1.png", "test/c/1.png", "test/b/2.png"):
        draw(name)
    items = read_folder(str(tmp_path))
    assert items.class_name == ("a", "b", "c")
    assert items.path == ("train/a/1.png", "train/b/1.png", "test/b/2.png", "test/c/1.png")
    assert items.y.tolist() == [0, 1, 1, 2]
    assert items.split.tolist() == ["train", "train", "test", "test"]


def test_one_split_name_alone_is_a_class(draw, tmp_path):
    draw("train/steam/1.png")
    draw("car/1.png")
    assert read_folder(str(tmp_path)).class_name == ("car", "train")


def test_split_names_with_pictures_only_are_classes(draw, tmp_path):
    draw("train/1.png")
    draw("test/1.png")
    items = read_folder(str(tmp_path))
    assert items.class_name == ("test", "train")
    assert items.split is None


def test_splits_beside_other_folders_are_an_error(draw, tmp_path):
    for name in ("train/a/1.png", "test/a/1.png", "valid/a/1.png"):
        draw(name)
    with pytest.raises(LikewiseError, match="has train, test beside valid; keep either only train, val, test"):
        read_folder(str(tmp_path))


def test_a_split_without_classes_is_an_error(draw, tmp_path):
    draw("train/a/1.png")
    draw("test/1.png")
    with pytest.raises(LikewiseError, match="train of .* hold class folders, but test does not"):
        read_folder(str(tmp_path))


def test_bad_folders_are_explained(draw, tmp_path):
    with pytest.raises(LikewiseError, match=r"gone must be a folder .* does not exist"):
        read_folder(str(tmp_path / "gone"))
    draw("1.png")
    with pytest.raises(LikewiseError, match="must hold one sub-folder per class, got no sub-folder"):
        read_folder(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(LikewiseError, match=r"must hold images, got none; images end in .*\.jpg"):
        read_folder(str(tmp_path))


def test_a_link_in_a_circle_ends(draw, tmp_path):
    draw("a/1.png")
    os.symlink(tmp_path / "a", tmp_path / "a" / "again")
    assert read_folder(str(tmp_path)).path == ("a/1.png",)
