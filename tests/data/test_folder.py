import os

import pytest
from likewise.types import LikewiseError
from odd_data import special_files

from likewise.data.class_folders import class_files, is_flat, read_flat, read_folder, walk_images


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
    with pytest.raises(LikewiseError, match="has train, test beside valid"):
        read_folder(str(tmp_path))


def test_a_split_without_classes_is_an_error(draw, tmp_path):
    draw("train/a/1.png")
    draw("test/1.png")
    with pytest.raises(LikewiseError, match="but test does not"):
        read_folder(str(tmp_path))


def test_bad_folders_are_explained(draw, tmp_path):
    with pytest.raises(LikewiseError, match=r"gone must be a folder .* does not exist"):
        read_folder(str(tmp_path / "gone"))
    draw("1.png")
    with pytest.raises(LikewiseError, match="got no sub-folder"):
        read_folder(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(LikewiseError, match=r"got none; images end in .*\.jpg"):
        read_folder(str(tmp_path))


def test_a_link_in_a_circle_ends(draw, tmp_path):
    draw("a/1.png")
    os.symlink(tmp_path / "a", tmp_path / "a" / "again")
    assert read_folder(str(tmp_path)).path == ("a/1.png",)


def test_each_folder_is_read_once_and_before_the_links_to_it(draw, tmp_path):
    """`loop` leads to the root, `also` and the class `a` to a class: 3 images, and not 3 for every way to them."""
    for name in ("root/b/1.png", "root/b/in/2.png", "root/c/3.png", "other/4.png", "other/in/5.png"):
        draw(name)
    root = tmp_path / "root"
    for link, target in (
        ("b/loop", ".."),
        ("b/above", "../.."),
        ("b/also", "../c"),
        ("a", "b"),
        ("b/itself", "."),
        ("c/out", "../../other"),
    ):
        os.symlink(target, root / link)
    items = read_folder(str(root))
    assert items.path == ("b/1.png", "b/in/2.png", "c/3.png", "c/out/4.png", "c/out/in/5.png")
    assert items.class_name == ("b", "c") and items.notes[0] == "ignored class folders without an image (1): 'a'"
    assert sorted(path for path, _ in items.left_out) == ["a", "b/above", "b/also", "b/itself", "b/loop"]
    assert {reason for _, reason in items.left_out} == {
        "the link leads to a folder that is read already, or that contains it"
    }
    assert class_files(str(root))[:2] == [("b", "b/1.png"), ("b", "b/in/2.png")]


def test_special_files_are_left_out(draw, tmp_path):
    draw("a/1.png")
    draw("flat/1.png")
    for folder in (tmp_path, tmp_path / "a", tmp_path / "flat"):
        with special_files(folder):
            pass  # the files stay
    items, flat = read_folder(str(tmp_path)), read_flat(str(tmp_path / "flat"))
    assert items.path == ("a/1.png", "flat/1.png") and flat.path == ("1.png",) and not is_flat(str(tmp_path / "flat"))
    reasons = dict(items.left_out)
    assert reasons["a/pipe.png"] == reasons["socket.png"] == "this is not a regular file"
    assert reasons["a/dangling.png"] == dict(flat.left_out)["dangling.png"] == "the link leads nowhere"
    assert reasons["circle.png"] == "the link cannot be followed (Too many levels of symbolic links)"


def test_a_folder_that_cannot_be_read_is_named(draw, tmp_path, monkeypatch):
    for name in ("a/1.png", "b/2.png", "b/closed/3.png"):
        draw(name)
    usual = os.scandir

    def refuse(folder):
        if str(folder).endswith("closed"):
            raise PermissionError(13, "Permission denied")  # permissions do not stop root
        return usual(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    items = read_folder(str(tmp_path))
    assert items.path == ("a/1.png", "b/2.png")
    assert items.left_out == (("b/closed", "the folder cannot be read (Permission denied)"),)
    assert walk_images(str(tmp_path), ["gone"]).left_out == [
        ("gone", "the folder cannot be read (No such file or directory)")
    ]
    with pytest.raises(LikewiseError, match=r"closed .* \(Permission denied\)"):
        read_folder(str(tmp_path / "b" / "closed"))


def test_a_regular_file_costs_no_call_of_the_system(draw, tmp_path, monkeypatch):
    for number in range(20):
        draw(f"a/{number}.png")
    calls = []
    usual = os.stat
    monkeypatch.setattr(os, "stat", lambda *at, **how: calls.append(at) or usual(*at, **how))
    assert len(read_folder(str(tmp_path)).path) == 20
    assert not any(str(at[0]).endswith(".png") for at in calls)


def test_names_that_tables_cannot_tell_apart(draw, tmp_path):
    for name in ("cat/1.png", "Cat/1.png", "e\u0301/1.png", "\u00e9/1.png"):
        draw(name)
    if len(os.listdir(tmp_path)) == 4:  # the file system tells them apart
        items = read_folder(str(tmp_path))
        assert len(items.class_name) == 4 and items.notes[-1].startswith(
            "class names that differ only in case or Unicode form are separate classes: 'Cat', 'cat', "
        )
    draw("cat /1.png")
    with pytest.raises(LikewiseError, match="the blanks .* got 'cat', 'cat '"):
        read_folder(str(tmp_path))
