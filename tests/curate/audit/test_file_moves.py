"""Moves that never replace a file: one disk, two disks, disks without hard links, and a copy that goes wrong."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from likewise.curate.audit import file_moves
from likewise.curate.audit.file_moves import copy_file, move_file, rename_new, same_content


@pytest.fixture
def pair(tmp_path):
    """A file and a free name in another folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "1.jpg").write_text("image")
    return tmp_path / "a" / "1.jpg", tmp_path / "b" / "2.jpg"


def fail_with(number: int):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def two_disks(source: Path, target: Path) -> None:
    """A `rename_new` of folders on two disks."""
    if source.parent != target.parent:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(source, target)


DISKS = {
    "with renameat2": {},
    "with hard links": {"linux_rename": lambda: None},
    "with neither": {"linux_rename": lambda: None, "os.link": fail_with(errno.EPERM)},
    "two": {"rename_new": two_disks},
}
"""Name of a situation -> what replaces functions of the module in it."""


@pytest.mark.parametrize("disk", DISKS)
def test_a_file_moves_and_a_taken_name_stays(pair, disk, monkeypatch):
    for name, function in DISKS[disk].items():
        monkeypatch.setattr(f"likewise.curate.audit.file_moves.{name}", function)
    source, target = pair
    target.write_text("another image")
    with pytest.raises(FileExistsError):
        move_file(source, target, "part")
    assert source.read_text() == "image" and target.read_text() == "another image"
    target.unlink()
    os.utime(source, ns=(10**18, 10**18))
    move_file(source, target, "part")
    assert not source.exists() and target.read_text() == "image" and target.stat().st_mtime_ns == 10**18
    link, moved = source.with_name("link.jpg"), target.with_name("link.jpg")
    link.symlink_to("/nowhere")
    move_file(link, moved, "part")
    assert os.readlink(moved) == "/nowhere" and not os.path.lexists(link)


def test_a_missing_file_is_an_error(pair):
    pair[0].unlink()
    with pytest.raises(FileNotFoundError):
        move_file(*pair, "part")


def test_folders_get_new_names_only(tmp_path):
    for name in ("old", "taken"):
        (tmp_path / name).mkdir()
    with pytest.raises(FileExistsError):
        rename_new(tmp_path / "old", tmp_path / "taken")
    rename_new(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").is_dir() and not (tmp_path / "old").exists()


def test_a_file_written_between_link_and_deletion_is_kept(pair, monkeypatch):
    """An editor may save a new file under the old name just then."""
    source, target = pair
    link = os.link

    def link_then_save(old, new):
        link(old, new)
        Path(old).unlink()
        Path(old).write_text("saved just now")

    monkeypatch.setattr(file_moves, "linux_rename", lambda: None)
    monkeypatch.setattr(os, "link", link_then_save)
    move_file(source, target, "part")
    assert source.read_text() == "saved just now" and target.read_text() == "image"


def test_a_copy_that_differs_deletes_nothing(pair, monkeypatch):
    """A disk that loses bytes without an error."""
    source, target = pair
    monkeypatch.setattr(file_moves, "rename_new", two_disks)
    monkeypatch.setattr(shutil, "copyfileobj", lambda old, new, length: new.write(b"imagE"))
    with pytest.raises(OSError, match="differs"):
        move_file(source, target, "part")
    assert source.read_text() == "image" and not target.exists()
    monkeypatch.undo()
    monkeypatch.setattr(file_moves, "rename_new", two_disks)
    move_file(source, target, "part")  # the partial copy is written again
    assert target.read_text() == "image" and os.listdir(target.parent) == ["2.jpg"]


def test_equal_content(pair):
    source, other = pair
    copy_file(source, other)
    assert same_content(source, other) and same_content(source, source)
    other.write_text("imagE")
    os.utime(other, ns=(source.stat().st_mtime_ns,) * 2)  # the same size and time
    assert not same_content(source, other)
    other.unlink()
    other.symlink_to(source)
    assert not same_content(source, other) and same_content(other, other)
    assert not same_content(source, source.parent)
