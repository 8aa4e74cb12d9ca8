"""Corrected tables become folders: links, moves, names that are taken, undo, and what cannot be applied."""

import csv
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from likewise.audit.apply import apply, undo
from likewise.config import Apply
from likewise.types import LikewiseError

GIVEN = {"a/1.jpg": "a", "a/2.jpg": "a", "a/x/3.jpg": "a", "b/1.jpg": "b", "b/4.jpg": "b"}
CORRECTED = {"a/1.jpg": "b", "a/2.jpg": "a", "a/x/3.jpg": "a", "b/1.jpg": "new class"}  # b/4.jpg was removed


@pytest.fixture
def table(tmp_path):
    """A data folder, and beside it the folder of an audit with its corrected table."""
    root, audit = tmp_path / "photos", tmp_path / "audit"
    for path in GIVEN:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"image {path}")
    audit.mkdir()
    about = {"title": "photos", "root": str(root), "rows": len(GIVEN), "pictures": True}
    (audit / "audit.json").write_text(json.dumps(about))
    names = "row,path,label,score,state,suggested,confidence,margin,reason,split"
    lines = [f"{row},{path},{label},0.9,ok,,,,," for row, (path, label) in enumerate(GIVEN.items())]
    (audit / "audit.csv").write_text("\n".join([names, *lines]))
    return write_table(audit / "corrected.csv", root, CORRECTED)


def write_table(file: Path, root: Path, labels: dict[str, str]) -> Path:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("path", "label"), *((root / path, label) for path, label in labels.items())])
    return file


def files(root: Path) -> dict[str, str]:
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {file.relative_to(root).as_posix(): file.read_text() for file in found}


def changes(applied) -> Counter:
    return Counter(move.change for move in applied.moves)


def test_without_a_place_nothing_is_changed(table, tmp_path):
    before = files(tmp_path)
    for config in (Apply(str(table)), Apply(str(table), in_place=True, dry_run=True)):
        planned = apply(config)
        assert planned.done == "planned" and changes(planned) == {"relabel": 2, "remove": 1}
        assert "2 images relabelled, 1 removed" in planned.lines()[0]
        assert (
            f"  {os.path.join('photos', 'a', '1.jpg')} -> {os.path.join('photos', 'b', '1-from-a.jpg')}"
            in planned.lines()
        )
    assert files(tmp_path) == before


def test_a_new_folder_of_links(table, tmp_path):
    before = files(tmp_path / "photos")
    applied = apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert files(tmp_path / "clean") == {
        "b/1.jpg": "image a/1.jpg", "a/2.jpg": "image a/2.jpg", "a/3.jpg": "image a/x/3.jpg",
        "new class/1.jpg": "image b/1.jpg",
    }  # fmt: skip
    assert changes(applied) == {"relabel": 2, "same": 2, "remove": 1}
    assert os.stat(tmp_path / "clean" / "b" / "1.jpg").st_nlink == 2  # no second copy on the disk
    assert apply(Apply(str(table), undo=True)).done == "undone"
    assert not (tmp_path / "clean").exists() and files(tmp_path / "photos") == before


def test_the_folder_of_the_same_table_is_written_again(table, tmp_path):
    """After more decisions, the same command updates the folder that it wrote; other folders stay untouched."""
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    write_table(table, tmp_path / "photos", CORRECTED | {"a/2.jpg": "b"})
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert sorted(files(tmp_path / "clean")) == ["a/3.jpg", "b/1.jpg", "b/2.jpg", "new class/1.jpg"]
    other = write_table(tmp_path / "other.csv", tmp_path / "photos", CORRECTED)
    with pytest.raises(LikewiseError, match="must be a new or empty folder"):
        apply(Apply(str(other), to=str(tmp_path / "clean")))


def test_copies_on_request(table, tmp_path):
    apply(Apply(str(table), to=str(tmp_path / "clean"), copy=True))
    assert os.stat(tmp_path / "clean" / "b" / "1.jpg").st_nlink == 1


def test_images_are_copied_where_links_are_impossible(table, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    said = []
    apply(Apply(str(table), to=str(tmp_path / "clean")), said.append)
    assert len(files(tmp_path / "clean")) == 4 and "4 of 4 images were copied" in said[0]


def test_two_images_of_one_name_in_one_class(tmp_path):
    root = tmp_path / "photos"
    for path in ("a/1.jpg", "b/1.JPG", "c/1.jpg", "a/x/1.jpg"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    labels = dict.fromkeys(("a/1.jpg", "b/1.JPG", "c/1.jpg", "a/x/1.jpg"), "a")
    apply(Apply(str(write_table(tmp_path / "t.csv", root, labels)), to=str(tmp_path / "clean")))
    assert sorted(files(tmp_path / "clean").values()) == sorted(labels)  # none is lost, also where case is ignored
    assert len({name.casefold() for name in files(tmp_path / "clean")}) == 4


def test_moves_in_place_and_back(table, tmp_path):
    before = files(tmp_path / "photos")
    applied = apply(Apply(str(table.parent), in_place=True))  # the folder of the audit names its table
    assert applied.done == "moved" and files(tmp_path / "photos") == {
        "b/1-from-a.jpg": "image a/1.jpg", "a/2.jpg": "image a/2.jpg", "a/x/3.jpg": "image a/x/3.jpg",
        "new class/1.jpg": "image b/1.jpg",
    }  # fmt: skip
    assert files(tmp_path / "photos-removed") == {"b/4.jpg": "image b/4.jpg"}
    with pytest.raises(LikewiseError, match="all images must exist, but 4 of 4|applied already"):
        apply(Apply(str(table), in_place=True))
    assert apply(Apply(str(table), undo=True)).done == "undone"
    assert files(tmp_path / "photos") == before
    assert not (tmp_path / "photos-removed").exists() and not (tmp_path / "photos" / "new class").exists()
    with pytest.raises(LikewiseError, match="nothing was applied"):
        apply(Apply(str(table), undo=True))


def test_an_interrupted_move_can_be_undone(table, tmp_path, monkeypatch):
    before, rename, calls = files(tmp_path / "photos"), os.rename, []

    def stop_at_second(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    real_rename = Path.rename
    monkeypatch.setattr(os, "rename", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        apply(Apply(str(table), in_place=True))
    monkeypatch.setattr(os, "rename", rename)
    assert Path.rename is real_rename and files(tmp_path / "photos") != before
    apply(Apply(str(table), undo=True))
    assert files(tmp_path / "photos") == before


def test_an_image_that_vanished_since_is_named(table, tmp_path):
    apply(Apply(str(table), in_place=True))
    (tmp_path / "photos" / "new class" / "1.jpg").unlink()
    with pytest.raises(LikewiseError, match="1 of 3 images are neither at their old nor at their new place"):
        undo(table.with_name("corrected.applied.json"))
    assert (tmp_path / "photos" / "a" / "1.jpg").exists()


def test_split_folders_stay(tmp_path):
    root = tmp_path / "photos"
    labels = {"train/a/1.jpg": "b", "train/b/2.jpg": "b", "test/a/1.jpg": "a"}
    for path in labels:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    table = write_table(tmp_path / "t.csv", root, labels)
    apply(Apply(str(table), in_place=True, root=str(root)))
    assert sorted(files(root)) == ["test/a/1.jpg", "train/b/1.jpg", "train/b/2.jpg"]


@pytest.mark.parametrize("label", ["../up", "a/b", "..", ".hidden", "a\\b"])
def test_a_class_name_never_leaves_the_folder(table, tmp_path, label):
    table = write_table(table, tmp_path / "photos", {"a/1.jpg": label, "a/2.jpg": "a"})
    for config in (Apply(str(table), to=str(tmp_path / "clean")), Apply(str(table), in_place=True)):
        with pytest.raises(LikewiseError, match="must be usable as a folder name"):
            apply(config)


def test_what_cannot_be_applied(table, tmp_path):
    for config, message in (
        (Apply("nowhere.csv"), "finish a review first"),
        (Apply(str(tmp_path / "photos")), "finish a review first"),
        (Apply(str(table), to="x", in_place=True), "exclude each other"),
        (Apply(str(table), to=str(tmp_path / "photos")), "must be a new or empty folder"),
        (Apply(str(table), in_place=True, root=str(tmp_path / "photos" / "a")), "must be in class folders below"),
    ):
        with pytest.raises(LikewiseError, match=message):
            apply(config)
    (tmp_path / "photos" / "a" / "2.jpg").unlink()
    with pytest.raises(LikewiseError, match="all images must exist, but 1 of 4"):
        apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert not (tmp_path / "clean").exists()
    boxes = tmp_path / "boxes.csv"
    boxes.write_text(f"path,label,box\n{tmp_path}/photos/a/1.jpg,a,0 0 5 5\n")
    with pytest.raises(LikewiseError, match="has boxes"):
        apply(Apply(str(boxes), to=str(tmp_path / "clean")))
