"""Corrected tables become folders: links, moves, names that are taken, undo, and what cannot be applied."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from likewise.config import Apply
from likewise.types import LikewiseError
from made_tables import files, write_audit, write_files, write_table

from likewise.core.locks import folder_lock
from likewise.curate.audit import apply_steps
from likewise.curate.audit.apply import apply, undo, unique
from likewise.curate.audit.apply_steps import FOLDER_RECORD
from likewise.curate.audit.file_moves import move_file

GIVEN = {"a/1.jpg": "a", "a/2.jpg": "a", "a/x/3.jpg": "a", "b/1.jpg": "b", "b/4.jpg": "b"}
CORRECTED = {"a/1.jpg": "b", "a/2.jpg": "a", "a/x/3.jpg": "a", "b/1.jpg": "new class"}  # b/4.jpg was removed


@pytest.fixture
def table(tmp_path):
    """A data folder, and beside it the folder of an audit with its corrected table."""
    write_files(tmp_path / "photos", GIVEN)
    return write_audit(tmp_path / "audit", tmp_path / "photos", GIVEN, CORRECTED)


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
    root, labels = tmp_path / "photos", dict.fromkeys(("a/1.jpg", "b/1.JPG", "c/1.jpg", "a/x/1.jpg"), "a")
    write_files(root, labels)
    apply(Apply(str(write_table(tmp_path / "t.csv", root, labels)), to=str(tmp_path / "clean")))
    assert sorted(files(tmp_path / "clean").values()) == sorted(f"image {path}" for path in labels)
    assert len({name.casefold() for name in files(tmp_path / "clean")}) == 4


def test_moves_in_place_and_back(table, tmp_path):
    before = files(tmp_path / "photos")
    applied = apply(Apply(str(table.parent), in_place=True))  # the folder of the audit names its table
    assert applied.done == "moved" and files(tmp_path / "photos") == {
        "b/1-from-a.jpg": "image a/1.jpg", "a/2.jpg": "image a/2.jpg", "a/x/3.jpg": "image a/x/3.jpg",
        "new class/1.jpg": "image b/1.jpg",
    }  # fmt: skip
    assert files(tmp_path / "photos-removed") == {"b/4.jpg": "image b/4.jpg"}
    with pytest.raises(LikewiseError, match="all images must exist"):
        apply(Apply(str(table), in_place=True))
    assert apply(Apply(str(table), undo=True)).done == "undone"
    assert files(tmp_path / "photos") == before
    assert not (tmp_path / "photos-removed").exists() and not (tmp_path / "photos" / "new class").exists()
    with pytest.raises(LikewiseError, match="nothing was applied"):
        apply(Apply(str(table), undo=True))


def test_a_table_in_the_data_folder(table, tmp_path):
    table = write_table(tmp_path / "photos" / "t.csv", tmp_path / "photos", CORRECTED)
    apply(Apply(str(table), in_place=True, root=str(tmp_path / "photos")))
    apply(Apply(str(table), undo=True))
    assert (tmp_path / "photos" / "a" / "1.jpg").exists()


def test_an_interrupted_move_can_be_undone(table, tmp_path, monkeypatch):
    before, calls, said = files(tmp_path / "photos"), [], []

    def stop_at_second(source, target, part):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        move_file(source, target, part)

    monkeypatch.setattr(apply_steps, "move_file", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        apply(Apply(str(table), in_place=True), said.append)
    assert "interrupted after 1 of 3 images" in said[0] and "--undo" in said[0]
    monkeypatch.undo()
    assert files(tmp_path / "photos") != before
    apply(Apply(str(table), undo=True))
    assert files(tmp_path / "photos") == before


def test_an_image_that_vanished_since_is_named(table, tmp_path):
    apply(Apply(str(table), in_place=True))
    (tmp_path / "photos" / "new class" / "1.jpg").unlink()
    with pytest.raises(LikewiseError, match="1 are neither there nor at their old place"):
        undo(table)
    assert (tmp_path / "photos" / "a" / "1.jpg").exists()


def test_split_folders_stay(tmp_path):
    root = tmp_path / "photos"
    labels = {"train/a/1.jpg": "b", "train/b/2.jpg": "b", "test/a/1.jpg": "a"}
    write_files(root, labels)
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
        (Apply(str(table), in_place=True, root=str(tmp_path / "photos" / "a")), "must be below the data folder"),
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


# --- nothing is lost, and nothing outside of the data folder is touched -------------------------------------------------


def test_the_data_folder_is_never_guessed(tmp_path):
    """Without an audit and --root, neither the parent folder nor / is taken for the data folder."""
    write_files(tmp_path, ("p/cat/0.png", "p/dog/0.png", "elsewhere/secret.png"))
    before = files(tmp_path)
    table = write_table(tmp_path / "t" / "corrected.csv", tmp_path, {"p/cat/0.png": "cat", "p/dog/0.png": "cat"})
    with pytest.raises(LikewiseError, match="give it with --root"):
        apply(Apply(str(table), in_place=True))
    for root in (tmp_path, "/"):
        with pytest.raises(LikewiseError, match="--root"):
            apply(Apply(str(table), in_place=True, root=str(root)))
    assert files(tmp_path / "p") == {path[2:]: text for path, text in before.items() if path.startswith("p/")}
    apply(Apply(str(table), in_place=True, root=str(tmp_path / "p")))
    assert sorted(files(tmp_path / "p")) == ["cat/0-from-dog.png", "cat/0.png"]


def test_a_table_names_nothing_outside_of_the_data_folder(table, tmp_path):
    write_files(tmp_path, ("stand-in/passwd", "stand-in/a/9.jpg"))
    before = files(tmp_path)
    for path in ("stand-in/a/9.jpg", "photos/../stand-in/a/9.jpg", "photos/a/../../stand-in/a/9.jpg"):
        write_table(table, tmp_path, {path: "b", **{f"photos/{name}": label for name, label in CORRECTED.items()}})
        with pytest.raises(LikewiseError, match="must be below the data folder"):
            apply(Apply(str(table), in_place=True))
    write_table(table, tmp_path, {"stand-in/passwd": "a"})
    with pytest.raises(LikewiseError, match="must be images"):
        apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert {path: text for path, text in files(tmp_path).items() if path != "audit/corrected.csv"} == {
        path: text for path, text in before.items() if path != "audit/corrected.csv"
    }


def test_a_file_that_is_no_image_is_not_moved(tmp_path):
    root = tmp_path / "photos"
    write_files(root, ("a/1.jpg", "b/passwd"))
    table = write_audit(tmp_path / "audit", root, {"a/1.jpg": "a", "b/passwd": "b"}, {"a/1.jpg": "a", "b/passwd": "a"})
    with pytest.raises(LikewiseError, match="must be images"):
        apply(Apply(str(table), in_place=True))
    assert sorted(files(root)) == ["a/1.jpg", "b/passwd"]


def test_a_table_of_images_that_are_in_no_class_folders(tmp_path):
    """The labels of a table need not be folders: `images/01.jpg` is in no folder of the class cat."""
    write_files(tmp_path / "shop", ("images/1.jpg", "images/2.jpg"))
    given = {"images/1.jpg": "cat", "images/2.jpg": "dog"}
    table = write_audit(tmp_path / "audit", tmp_path / "shop", given, given | {"images/1.jpg": "dog"})
    with pytest.raises(LikewiseError, match="'images/1.jpg' is in 'images' and had the label 'cat'"):
        apply(Apply(str(table), in_place=True))


def test_a_removal_never_replaces_an_earlier_removed_image(tmp_path):
    root = tmp_path / "photos"
    write_files(root, ("cat/1.png", "cat/2.png", "dog/3.png"))
    given = {"cat/1.png": "cat", "cat/2.png": "cat", "dog/3.png": "dog"}
    kept = {path: label for path, label in given.items() if path != "cat/1.png"}
    first = write_audit(tmp_path / "first", root, given, kept)
    apply(Apply(str(first), in_place=True))
    (root / "cat" / "1.png").write_text("a new image")
    second = write_audit(tmp_path / "second", root, given, kept)
    apply(Apply(str(second), in_place=True))
    assert sorted(files(tmp_path / "photos-removed").values()) == ["a new image", "image cat/1.png"]
    with pytest.raises(LikewiseError, match="must be undone first, but it came from another table"):
        apply(Apply(str(first), undo=True))
    apply(Apply(str(second), undo=True))
    assert (root / "cat" / "1.png").read_text() == "a new image"
    with pytest.raises(LikewiseError, match="old places of all images must be free, but 1 have another file"):
        apply(Apply(str(first), undo=True))
    (root / "cat" / "1.png").rename(root / "cat" / "new.png")
    apply(Apply(str(first), undo=True))
    assert (root / "cat" / "1.png").read_text() == "image cat/1.png" and not (tmp_path / "photos-removed").exists()


def foreign_records(place: Path) -> list:
    """Records that `apply` did not write; each names a folder or files of the user."""
    step = {"id": "0" * 32, "table": str(place / "t.csv"), "folder": str(place), "time": "now"}
    move = [str(place / "notes.jpg"), str(place / "stolen.jpg")]
    return [
        {"written": str(place)},
        {"root": str(place), "moves": [[*move, "relabel"]]},
        {"steps": [{**step, "how": "to"}]},
        {"steps": [{**step, "how": "to", "files": [move]}]},
        {"steps": [{**step, "how": "in-place", "files": [move]}]},
        {"steps": [{**step, "how": "in-place", "folder": "/", "files": [move]}]},
    ]


def test_a_record_from_elsewhere_has_no_effect(table, tmp_path):
    mine = tmp_path / "mine"
    write_files(mine, ("notes.jpg", "a/1.jpg"))
    before, record = files(tmp_path), table.with_name("corrected.applied.json")
    for found in foreign_records(mine):
        record.write_text(json.dumps(found))
        with pytest.raises(LikewiseError, match=r"nothing was changed|must be at its place"):
            apply(Apply(str(table), undo=True))
        record.write_text(json.dumps(found))
        with pytest.raises(LikewiseError, match=r"must be a new or empty folder|from an older version"):
            apply(Apply(str(table), to=str(mine)))
        assert files(tmp_path) == before and sorted(os.listdir(mine)) == ["a", "notes.jpg"]


def test_a_record_that_came_with_its_folder_touches_nothing_else(table, tmp_path):
    """Both records have one id, but the moves lead out of the data folder, directly or through a link."""
    root = tmp_path / "photos"
    write_files(tmp_path / "mine", ("1.jpg",))
    (root / "link").symlink_to(tmp_path / "mine")
    step = {"id": "0" * 32, "how": "in-place", "table": str(table), "folder": str(root), "time": "now"}
    table.with_name("corrected.applied.json").write_text(json.dumps({"steps": [step]}))
    before = files(tmp_path)
    for new in ("../mine/1.jpg", str(tmp_path / "mine" / "1.jpg"), "link/1.jpg", "../photos-removed/../mine/1.jpg"):
        for pair in (["a/9.jpg", new], [new, "a/1.jpg"]):
            (root / FOLDER_RECORD).write_text(json.dumps({"steps": [{**step, "files": [pair]}]}))
            with pytest.raises(LikewiseError, match="must be below the data folder|real folders"):
                apply(Apply(str(table), undo=True))
            assert files(tmp_path) == before


def test_a_disk_that_is_not_mounted_loses_no_step(table, tmp_path):
    """Other files at the place of the data folder, without a record: the step can be undone when the folder is back."""
    apply(Apply(str(table), in_place=True))
    photos = (tmp_path / "photos").rename(tmp_path / "disk")
    write_files(tmp_path / "photos", ("lost+found",))
    for _ in range(2):
        with pytest.raises(LikewiseError, match="if another disk belongs there, mount it"):
            apply(Apply(str(table), undo=True))
    (tmp_path / "photos" / "lost+found").unlink()
    (tmp_path / "photos").rmdir()
    photos.rename(tmp_path / "photos")
    apply(Apply(str(table), undo=True))
    assert files(tmp_path / "photos") == {path: f"image {path}" for path in GIVEN}


@pytest.mark.parametrize("name", ["corrected.applied.json", FOLDER_RECORD])
def test_a_damaged_record_is_an_error_before_any_change(table, tmp_path, name):
    apply(Apply(str(table), in_place=True))
    record = table.with_name(name) if name != FOLDER_RECORD else tmp_path / "photos" / name
    before, good = files(tmp_path), record.read_text()
    step = json.loads(good)["steps"][0]
    odd = ["", "{", good[: len(good) // 2], "[]", "null", "3", "{}", '{"steps": 3}', '{"steps": [3]}', "\0", "[" * 9999]
    odd += [json.dumps({"steps": [step | change]}) for change in (
        {"id": 3}, {"id": "x/../y"}, {"id": "0"}, {"folder": "/"}, {"files": [["a/\ud800.jpg", "a/1.jpg"]]},
        {"how": "delete"}, {"folder": None}, {"folder": "photos"}, {"files": {}}, {"files": ["ab"]},
        {"files": [["a"]]}, {"files": [["a/1.jpg", None]]}, {"files": [["a\0", "b"]]}, {"folders": [1]}, {"table": []},
    )]  # fmt: skip
    for text in odd:
        record.write_text(text)
        for config in (Apply(str(table), undo=True), Apply(str(table), to=str(tmp_path / "clean"))):
            if name != FOLDER_RECORD or config.undo:
                with pytest.raises(LikewiseError, match=r"^apply: "):
                    apply(config)
        assert files(tmp_path) == before, text
    record.write_bytes(b"\xff")
    with pytest.raises(LikewiseError, match="is damaged"):
        apply(Apply(str(table), undo=True))
    record.write_text(good)
    apply(Apply(str(table), undo=True))


def test_steps_are_undone_last_first(tmp_path):
    """A folder written after moves in place does not hide the record of the moves."""
    root = tmp_path / "photos"
    write_files(root, ("a/1.jpg", "a/2.jpg", "b/3.jpg"))
    given = {"a/1.jpg": "a", "a/2.jpg": "a", "b/3.jpg": "b"}
    before = files(root)
    table = write_audit(tmp_path / "audit", root, given, {"a/2.jpg": "a", "b/3.jpg": "b"})
    apply(Apply(str(table), in_place=True))
    apply(Apply(str(table), to=str(tmp_path / "c")))
    apply(Apply(str(table), undo=True))
    assert not (tmp_path / "c").exists() and files(root) != before
    apply(Apply(str(table), undo=True))
    assert files(root) == before
    with pytest.raises(LikewiseError, match="everything was undone"):
        apply(Apply(str(table), undo=True))


@pytest.mark.parametrize("copy", [False, True])
def test_files_of_the_user_in_a_written_folder_are_kept(table, tmp_path, copy):
    clean = tmp_path / "clean"
    apply(Apply(str(table), to=str(clean), copy=copy))

    def is_refused(name: str):
        before = files(clean)
        for config in (Apply(str(table), undo=True), Apply(str(table), to=str(clean))):
            with pytest.raises(LikewiseError, match=f"1 were added or changed, .*'{name}'|all images must exist"):
                apply(config)
        assert files(clean) == before

    (clean / "notes").write_text("mine")
    is_refused("notes")
    (clean / "notes").unlink()
    (clean / "empty").mkdir()
    is_refused("empty")
    (clean / "empty").rmdir()
    (clean / "b" / "1.jpg").unlink()
    (clean / "b" / "1.jpg").write_text("edited")
    is_refused("b/1.jpg")
    (clean / "b" / "1.jpg").unlink()
    original = tmp_path / "photos" / "a" / "2.jpg"
    original.unlink()  # the new folder has the only copy now
    is_refused("a/2.jpg")
    original.write_text((clean / "a" / "2.jpg").read_text())
    apply(Apply(str(table), undo=True))
    assert not clean.exists()


def test_undo_onto_a_place_that_is_taken_changes_nothing(table, tmp_path):
    apply(Apply(str(table), in_place=True))
    (tmp_path / "photos" / "a" / "1.jpg").write_text("a new image")
    before = files(tmp_path)
    with pytest.raises(LikewiseError, match=r"1 have another file: '.*1.jpg'"):
        apply(Apply(str(table), undo=True))
    assert files(tmp_path) == before
    (tmp_path / "photos" / "a" / "1.jpg").unlink()
    assert apply(Apply(str(table), undo=True)).done == "undone"
    assert files(tmp_path / "photos") == {path: f"image {path}" for path in GIVEN}


def test_a_failure_on_the_way_names_undo(table, tmp_path, monkeypatch):
    """Two disks, names that are too long, no permission: the error says what was moved and how to reverse it."""
    before = files(tmp_path / "photos")

    def fail_at_second(source, target, part):
        if target.name == "4.jpg":
            raise OSError(36, "File name too long")
        move_file(source, target, part)

    monkeypatch.setattr(apply_steps, "move_file", fail_at_second)
    with pytest.raises(
        LikewiseError, match=r"2 of 3 images were moved before it: `likewise apply .* --undo` moves them back"
    ):
        apply(Apply(str(table), in_place=True))
    monkeypatch.undo()
    apply(Apply(str(table), undo=True))
    assert files(tmp_path / "photos") == before


def test_long_names_get_a_shorter_stem(tmp_path):
    root, long = tmp_path / "photos", "x" * 251 + ".jpg"
    write_files(root, (f"a/{long}", f"b/{long}", "b/2.jpg"))
    given = {f"a/{long}": "a", f"b/{long}": "b", "b/2.jpg": "b"}
    table = write_audit(tmp_path / "audit", root, given, given | {f"a/{long}": "b"})
    apply(Apply(str(table), in_place=True))
    assert len(files(root)) == 3 and all(len(Path(path).name) <= 255 for path in files(root))
    with pytest.raises(LikewiseError, match="usable as a folder name"):
        apply(Apply(str(write_table(tmp_path / "t.csv", root, {"b/2.jpg": "y" * 256})), to=str(tmp_path / "c")))


def test_empty_class_folders_stay_after_undo(table, tmp_path):
    (tmp_path / "photos" / "empty").mkdir()
    (tmp_path / "photos-removed").mkdir()
    write_table(table, tmp_path / "photos", CORRECTED | {"a/2.jpg": "empty"})
    apply(Apply(str(table), in_place=True))
    apply(Apply(str(table), undo=True))
    assert (tmp_path / "photos" / "empty").is_dir() and (tmp_path / "photos-removed").is_dir()
    assert not (tmp_path / "photos" / "new class").exists()


def test_links_are_not_followed(tmp_path):
    root, disk = tmp_path / "photos", tmp_path / "disk"
    write_files(root, ("b/1.jpg", "b/2.jpg"))
    write_files(disk, ("3.jpg",))
    (root / "a").symlink_to(disk)
    given = {"a/3.jpg": "a", "b/1.jpg": "b", "b/2.jpg": "b"}
    before = files(disk), files(root)
    for path, label in (("a/3.jpg", "b"), ("b/1.jpg", "a")):
        table = write_audit(tmp_path / "audit", root, given, given | {path: label})
        with pytest.raises(LikewiseError, match="is a link; write a new folder with --to"):
            apply(Apply(str(table), in_place=True))
    assert (files(disk), files(root)) == before
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert len(files(tmp_path / "clean")) == 3


def test_images_that_are_links(tmp_path):
    root = tmp_path / "photos"
    write_files(root, ("b/1.jpg", "b/c/2.jpg"))
    write_files(tmp_path / "store", ("3.jpg",))
    (root / "a").mkdir()
    (root / "a" / "3.jpg").symlink_to(tmp_path / "store" / "3.jpg")
    (root / "a" / "4.jpg").symlink_to("../../store/3.jpg")
    (root / "a" / "5.jpg").symlink_to("3.jpg")
    given = {"a/3.jpg": "a", "a/4.jpg": "a", "a/5.jpg": "a", "b/1.jpg": "b", "b/c/2.jpg": "b"}
    with pytest.raises(LikewiseError, match=r"a link must lead to its image .*5.jpg"):
        apply(Apply(str(write_audit(tmp_path / "x", root, given, given | {"a/5.jpg": "b"})), in_place=True))
    table = write_audit(tmp_path / "audit", root, given, given | {"a/3.jpg": "b", "a/4.jpg": "b"})
    apply(Apply(str(table), in_place=True))
    assert (root / "b" / "3.jpg").read_text() == (root / "b" / "4.jpg").read_text() == "image 3.jpg"
    apply(Apply(str(table), undo=True))
    assert os.readlink(root / "a" / "4.jpg") == "../../store/3.jpg"


def test_a_data_folder_that_is_named_through_a_link(table, tmp_path):
    (tmp_path / "linked").symlink_to(tmp_path / "photos")
    write_table(table, tmp_path / "linked", CORRECTED)
    apply(Apply(str(table), in_place=True, root=str(tmp_path / "linked")))
    assert (tmp_path / "photos" / "b" / "1-from-a.jpg").exists() and (
        tmp_path / "photos-removed" / "b" / "4.jpg"
    ).exists()
    apply(Apply(str(table), undo=True))
    assert files(tmp_path / "photos") == {path: f"image {path}" for path in GIVEN}


def test_one_image_with_two_labels(table, tmp_path):
    (tmp_path / "linked").symlink_to(tmp_path / "photos")
    with table.open("a") as out:
        out.write(f"{tmp_path}/linked/a/2.jpg,b\n")
    with pytest.raises(LikewiseError, match="an image must have one label, but 'a/2.jpg' has 'a', 'b'"):
        apply(Apply(str(table), in_place=True, root=str(tmp_path / "linked")))


def test_a_table_that_is_older_than_its_audit(table, tmp_path):
    """After new images and a new audit, they are in no line of the old table: they were not removed by a reviewer."""
    os.utime(table, (1, 1))
    for config in (Apply(str(table)), Apply(str(table), in_place=True), Apply(str(table), to=str(tmp_path / "clean"))):
        with pytest.raises(LikewiseError, match="must be newer than the audit"):
            apply(config)


def test_undo_excludes_other_actions_and_needs_no_table(table, tmp_path):
    apply(Apply(str(table), in_place=True))
    for other in ({"to": str(tmp_path / "clean")}, {"in_place": True}, {"dry_run": True}):
        with pytest.raises(LikewiseError, match="--undo excludes"):
            apply(Apply(str(table), undo=True, **other))
    assert (tmp_path / "photos" / "new class" / "1.jpg").exists()
    table.unlink()
    assert apply(Apply(str(table), undo=True)).done == "undone"


def test_two_calls_at_once(table, tmp_path):
    with folder_lock(tmp_path / "photos"), pytest.raises(LikewiseError, match="another process"):
        apply(Apply(str(table), in_place=True))
    with folder_lock(table.parent), pytest.raises(LikewiseError, match="another process"):
        apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert files(tmp_path / "photos") == {path: f"image {path}" for path in GIVEN} and not (tmp_path / "clean").exists()


def test_an_interrupted_folder_is_written_again(table, tmp_path, monkeypatch):
    """Killed after the folder got its name, or before: the same command completes it."""
    rename = apply_steps.rename_new
    for when in ("before", "after"):

        def stop(source, target, when=when):
            if when == "after":
                rename(source, target)
            raise KeyboardInterrupt

        monkeypatch.setattr(apply_steps, "rename_new", stop)
        with pytest.raises(KeyboardInterrupt):
            apply(Apply(str(table), to=str(tmp_path / "clean")))
        monkeypatch.undo()
        apply(Apply(str(table), to=str(tmp_path / "clean")))
        assert len(files(tmp_path / "clean")) == 4 and not list(tmp_path.glob(".likewise*"))
    apply(Apply(str(table), undo=True))
    assert not (tmp_path / "clean").exists()


def test_a_second_round(table, tmp_path):
    """A new audit of the moved images, in the same folder, is applied too; undo reverses both, the last one first."""
    root, before = tmp_path / "photos", files(tmp_path / "photos")
    apply(Apply(str(table), in_place=True))
    between = files(root)
    given = {path: path.split("/")[0] for path in between}
    write_audit(table.parent, root, given, given | {"a/2.jpg": "b"})
    apply(Apply(str(table), in_place=True))
    assert (root / "b" / "2.jpg").exists()
    for expected in (between, before):
        apply(Apply(str(table), undo=True))
        assert files(root) == expected


def test_tables_with_odd_names(table, tmp_path):
    """`audit/` and `audit.csv` have a record each, and a name may have the characters of patterns."""
    other = write_table(tmp_path / "audit.csv", tmp_path / "photos", {"a/2.jpg": "b"})
    apply(Apply(str(other), in_place=True, root=str(tmp_path / "photos")))
    with pytest.raises(LikewiseError, match="nothing was applied from this table"):
        apply(Apply(str(table.parent), undo=True))
    apply(Apply(str(other), undo=True))
    odd = table.rename(table.with_name("a**[b].csv"))
    apply(Apply(str(odd), in_place=True))
    apply(Apply(str(odd), undo=True))
    assert files(tmp_path / "photos") == {path: f"image {path}" for path in GIVEN}


def test_a_link_to_the_top_folder_is_no_data_folder(table, tmp_path):
    (tmp_path / "top").symlink_to(tmp_path.anchor)
    with pytest.raises(LikewiseError, match="must be a folder of class folders"):
        apply(Apply(str(table), root=str(tmp_path / "top")))


def test_many_images_of_one_name():
    """The number of tried names grows with the number of images, not with its square; old folders may have long names."""
    tried, taken, folder = [], {}, "y" * 250
    names = [
        unique(Path("/c/0.jpg"), f"/p/{number}/{folder}/0.jpg", taken, lambda name: not tried.append(name))
        for number in range(50)
    ]
    assert len(set(names)) == 50 and len(tried) < 150 and all(len(Path(name).name) <= 255 for name in names)


def test_a_class_folder_with_a_blank_at_its_end(tmp_path):
    """Tables have its label without the blank; images that were not relabelled stay."""
    given = {"a /1.jpg": "a ", "b/2.jpg": "b", "b/3.jpg": "b"}
    write_files(tmp_path / "photos", given)
    table = write_audit(tmp_path / "audit", tmp_path / "photos", given, given | {"a /1.jpg": "a ", "b/2.jpg": "c"})
    apply(Apply(str(table), in_place=True))
    assert sorted(files(tmp_path / "photos")) == ["a /1.jpg", "b/3.jpg", "c/2.jpg"]


def test_names_in_any_bytes(tmp_path):
    """Latin-1 names of classes and images, and a line break, from the table to the folders, the records and back."""
    root, latin = tmp_path / "photos", os.fsdecode(b"caf\xe9")
    given = {f"{latin}/1\n.jpg": latin, "b/\udcff.jpg": "b", "b/2.jpg": "b"}
    write_files(root, given)
    before = files(root)
    table = write_audit(tmp_path / "audit", root, given, {f"{latin}/1\n.jpg": "b", "b/\udcff.jpg": latin})
    apply(Apply(str(table), to=str(tmp_path / "clean")))
    assert sorted(files(tmp_path / "clean")) == ["b/1\n.jpg", f"{latin}/\udcff.jpg"]
    apply(Apply(str(table), undo=True))
    applied = apply(Apply(str(table), in_place=True))
    assert sorted(files(root)) == ["b/1\n.jpg", f"{latin}/\udcff.jpg"]
    assert all(line.isprintable() for line in applied.lines()) and any("1\\n.jpg" in line for line in applied.lines())
    apply(Apply(str(table), undo=True))
    assert files(root) == before
