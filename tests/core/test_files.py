"""Files that are whole or not there."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.errors import CONTROL_CHARACTERS, DiskFull, LikewiseError

from likewise.core.files import (
    atomic_write,
    check_creatable,
    check_output_file,
    check_output_path,
    json_text,
    load_arrays,
    make_folder,
    open_csv,
    read_json,
    text_cells,
    text_column,
    write_csv,
    write_json,
    write_text,
)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_really_full_device(tmp_path):
    """The kernel's own refusal, not a simulated one: the message names the file, and nothing half-written remains."""
    target = tmp_path / "model.bin"
    target.write_text("old")
    with pytest.raises(DiskFull, match="no space left on the disk"), atomic_write(target) as aside:
        os.symlink("/dev/full", aside)
        aside.write_text("x" * 100_000)
    with pytest.raises(DiskFull, match="no space left on the disk"), atomic_write(target) as aside:
        os.symlink("/dev/full", aside)
        with aside.open("wb") as file:
            torch.save({"a": torch.zeros(100_000)}, file)  # which raises an error of its own
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["model.bin"]


def test_an_error_while_writing_leaves_no_rubbish(tmp_path):
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "x") as aside:
        aside.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_again(tmp_path):
    write_json(tmp_path / "a.json", {"é": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"é": [1, None]}
    write_csv(tmp_path / "a.csv", ("name", "n"), [('say "a, b"', 1), ("two\nlines", 2)])
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["name", "n"], ['say "a, b"', "1"], ["two\nlines", "2"]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json"]


ODD_NAMES = [
    "\udcff",
    "caf\udce9",
    "a\rb",
    "a\nb\r\n",
    '"',
    "\x1b[2J",
    " x ",
    "\u2028\x85",
    "été",
    "",
    "\\\udcff",
    "\\udcff",
]


def test_names_in_any_bytes_come_back_from_every_kind_of_file(tmp_path):
    write_csv(tmp_path / "a.csv", ("name", "n"), [(name, n) for n, name in enumerate(ODD_NAMES)])
    with open_csv(tmp_path / "a.csv") as file:
        assert list(csv.reader(file)) == [["name", "n"], *([name, str(n)] for n, name in enumerate(ODD_NAMES))]
    assert b"caf\xe9," in (tmp_path / "a.csv").read_bytes()
    write_json(tmp_path / "a.json", {name: name for name in ODD_NAMES})
    assert list(read_json(tmp_path / "a.json", "test").items()) == [(name, name) for name in ODD_NAMES]
    assert json.loads(json_text(ODD_NAMES)) == ODD_NAMES and not CONTROL_CHARACTERS.search(
        json_text(ODD_NAMES).replace("\n", "")
    )
    for names, kind in ((ODD_NAMES, "binary"), (ODD_NAMES[2:10], "string")):
        pq.write_table(pa.table({"name": text_column(names)}), tmp_path / "a.parquet")
        read = pq.read_table(tmp_path / "a.parquet")["name"]
        assert text_cells(read) == names and read.type == kind
    write_text(tmp_path / "a.html", "<p>caf\udce9")
    assert (tmp_path / "a.html").read_text("utf-8") == "<p>caf\\udce9"


def test_a_file_that_cannot_be_written_is_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for out, message in (
        ("folder", r"--out must be the name of a file, got '.*' \(Is a directory\)"),
        ("x" * 300, r"--out must be the name of a file, got '.*' \(File name too long\)"),
        ("a\0b", r"--out must be the name of a file, got '.*' \(.*null.*\)"),
        ("file/below", "the folder of --out '.*' does not exist"),
    ):
        with pytest.raises(LikewiseError, match=f"^test: {message}"):
            check_output_file(tmp_path / out, "test")
    assert check_output_file(tmp_path / "new", "test") == tmp_path / "new" and not (tmp_path / "new").exists()

    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)  # a folder without write permission does not stop root
    for check in (lambda: check_output_file(tmp_path / "new", "test"), lambda: make_folder(tmp_path / "made", "test")):
        with pytest.raises(LikewiseError, match=r"test: the folder of --out must be writable.*\(Permission denied\)"):
            check()


def test_json_that_cannot_be_read_is_one_sentence(tmp_path):
    file = tmp_path / "a.json"
    for text in (b"", b"{", b"[1]", b"7", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"):
        file.write_bytes(text)
        with pytest.raises(LikewiseError, match=r"^tune: .*a\.json is damaged \(.*\); delete it$"):
            read_json(file, "tune", hint="delete it")
    file.write_text("[1]")
    assert read_json(file, "tune", list) == [1]


def test_a_folder_is_made_with_all_above_it_and_a_file_is_none(tmp_path):
    assert (
        make_folder(tmp_path / "a" / "b", "overlap") == tmp_path / "a" / "b" == make_folder(tmp_path / "a/b", "overlap")
    )
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(LikewiseError, match="overlap: --out must be a folder, got '.*file'"):
        make_folder(tmp_path / "file", "overlap")


def test_a_folder_that_cannot_be_created_is_known_before_the_work(tmp_path, monkeypatch):
    check_creatable(tmp_path, "train")
    check_creatable(tmp_path / "a" / "b", "train")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LikewiseError, match="clean: --to must be a folder, got '.*file/new', but '.*file' is a file; choose"
    ):
        check_creatable(tmp_path / "file" / "new", "clean", "--to")

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("likewise.core.files.tempfile.TemporaryFile", refuse)
    with pytest.raises(
        LikewiseError, match=r"train: the folder of --out must be writable, .* \(Permission denied\); choose"
    ):
        check_creatable(tmp_path / "a" / "b", "train")


def test_where_to_write_is_known_before_the_work(tmp_path):
    assert check_output_path(str(tmp_path / "a.PNG"), ".png", "compare") == tmp_path / "a.PNG"
    with pytest.raises(LikewiseError, match="compare: --out must end in .png, got '.*a.txt'"):
        check_output_path(str(tmp_path / "a.txt"), ".png", "compare")
    with pytest.raises(LikewiseError, match="compare: the folder of --save .* does not exist"):
        check_output_path(str(tmp_path / "nowhere" / "a.png"), ".png", "compare", flag="--save")


def test_arrays_are_read_or_the_file_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones(2), z=np.array([None]))
    assert list(load_arrays(tmp_path / "a.npz", "audit", "audit again", ("y", "x"))) == ["y", "x"]
    assert list(load_arrays(tmp_path / "a.npz", "audit", "audit again", ("y", "w"), need=False)) == ["y"]
    np.save(tmp_path / "b.npz", np.arange(3))
    (tmp_path / "b.npz.npy").rename(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"")
    for file, name in (("a", "w"), ("a", "z"), ("b", "x"), ("c", "x"), ("d", "x")):
        with pytest.raises(LikewiseError, match=rf"^audit: .*{file}\.npz is damaged \(.+\); audit again$"):
            load_arrays(tmp_path / f"{file}.npz", "audit", "audit again", (name,))


def test_arrays_of_another_type_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones((2, 2)))
    kinds = {"x": ("iu", 1), "y": ("f", 2), "w": ("f", 1)}
    assert list(load_arrays(tmp_path / "a.npz", "audit", "audit again", kinds, need=False)) == ["x", "y"]
    for wrong in ({"x": ("f", 1)}, {"x": ("iu", 2)}, {"y": ("f", 1)}):
        with pytest.raises(LikewiseError, match="the array [xy] is .* of shape .*; audit again$"):
            load_arrays(tmp_path / "a.npz", "audit", "audit again", wrong)


def test_an_error_names_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("as on a read-only disk")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(FileNotFoundError) as error, atomic_write(tmp_path / "gone" / "a.txt") as aside:
        aside.write_text("x")
    assert error.value.filename == str(tmp_path / "gone" / "a.txt")
