"""What `send` and `receive` may overwrite: nothing without --replace, and never a part of it."""

import errno
import os

import pytest
from exchange_rows import write_audit, write_vectors
from likewise.errors import DiskFull, LikewiseError

import likewise
from likewise.curate.exchange.places import check_free, check_source


def files_in(folder):
    """Return path -> bytes of all files below a folder; of its links, None."""
    return {
        str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None
        for file in folder.rglob("*")
        if not file.is_dir()
    }


def test_files_and_folders(tmp_path):
    file, link = tmp_path / "t.csv", tmp_path / "link.csv"
    check_free([file], "csv", replace=False)
    file.write_text("mine")
    link.symlink_to("nowhere")
    for taken in (file, link):
        with pytest.raises(LikewiseError, match="must be a new file, but it exists; choose another name"):
            check_free([tmp_path / "new.csv", taken], "csv", replace=False)
        check_free([taken], "csv", replace=True)
    with pytest.raises(LikewiseError, match="must be a new file, got a folder"):
        check_free([tmp_path], "csv", replace=True)
    check_source(file, "csv", "a table")
    with pytest.raises(LikewiseError, match="csv: the source must be a table, got .*; check the path"):
        check_source(tmp_path, "csv", "a table")


def test_no_tool_overwrites_a_file(tmp_path, subtests):
    audit, vectors = write_audit(tmp_path, n=4, images=True), write_vectors(tmp_path, n=4)
    cases = {  # tool -> target, place, files that it writes
        "csv": (audit, "out/t.csv", ["t.csv"]),
        "label-studio": (audit, "out", ["tasks.json", "config.xml"]),
        "cvat": (audit, "out", ["annotations.xml", "labels.json"]),
        "faiss": (vectors, "out/i.faiss", ["i.faiss", "i.csv"]),
    }
    for tool, (target, place, names) in cases.items():
        if tool == "faiss":
            pytest.importorskip("faiss", reason="needs likewise[faiss]")
        for name in names:
            with subtests.test(f"{tool} {name}"):
                home = tmp_path / f"{tool}-{name}"
                taken = home / "out" / name
                taken.parent.mkdir(parents=True)
                taken.write_text("work of a person")
                with pytest.raises(LikewiseError, match=f"{tool}: .*{name}' must be a new file, but it exists"):
                    likewise.send(target, tool, home / place)
                assert files_in(home) == {f"out/{name}": b"work of a person"}
                likewise.send(target, tool, home / place, replace=True)
                assert files_in(home).keys() == {f"out/{one}" for one in names}
                assert taken.read_bytes() != b"work of a person"


def test_a_received_file_is_not_overwritten(tmp_path):
    likewise.send(write_vectors(tmp_path, n=4), "csv", tmp_path / "t.csv")
    (tmp_path / "u.csv").write_text("mine")
    with pytest.raises(LikewiseError, match="receive: .*u.csv' must be a new file, but it exists"):
        likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")
    assert (tmp_path / "u.csv").read_text() == "mine"
    likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv", replace=True)
    assert (tmp_path / "u.csv").read_text("utf-8").count("/birds/") == 4
    (tmp_path / "link.csv").symlink_to("t.csv")
    before = (tmp_path / "t.csv").read_bytes()
    for into in ("t.csv", "link.csv"):
        with pytest.raises(LikewiseError, match="receive: --into must not replace what is read"):
            likewise.receive(tmp_path / "t.csv", "csv", tmp_path / into, replace=True)
    assert (tmp_path / "t.csv").read_bytes() == before


REFUSALS = {errno.EACCES: "denied", errno.EROFS: "read-only", errno.ENOSPC: "full"}


@pytest.mark.parametrize("error", [OSError(*one) for one in REFUSALS.items()], ids=REFUSALS.values())
def test_a_disk_that_refuses(tmp_path, subtests, monkeypatch, error):
    audit, vectors = write_audit(tmp_path, n=4, images=True), write_vectors(tmp_path, n=4)
    likewise.send(vectors, "csv", tmp_path / "t.csv")
    before = files_in(tmp_path)

    def fail(*paths):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    for tool, target, place in (
        ("csv", audit, "s.csv"), ("label-studio", audit, "studio"), ("cvat", audit, "cvat"),
        ("hugging-face", audit, "hf"), ("faiss", vectors, "i.faiss"),
    ):  # fmt: skip
        with subtests.test(tool):
            if tool in ("faiss", "hugging-face"):
                pytest.importorskip("faiss" if tool == "faiss" else "pyarrow")
            with pytest.raises(LikewiseError, match="; |Free some space"):
                likewise.send(target, tool, tmp_path / place)
            assert files_in(tmp_path) == before
    with subtests.test("receive"):
        with pytest.raises(LikewiseError, match="receive: .*; check its permissions and its disk|Free some space"):
            likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")
        assert files_in(tmp_path) == before


def test_an_interrupted_replacement_keeps_the_old_index_and_table(tmp_path, monkeypatch):
    faiss = pytest.importorskip("faiss", reason="needs likewise[faiss]")
    likewise.send(write_vectors(tmp_path, n=4), "faiss", tmp_path / "i.faiss")
    more, before = write_vectors(tmp_path, n=5), files_in(tmp_path)
    before["z.npz"] = more.read_bytes()
    for error, raised in (
        (KeyboardInterrupt(), KeyboardInterrupt),
        (RuntimeError(f"write error: {os.strerror(errno.ENOSPC)}"), DiskFull),
        (RuntimeError("could not open for writing: Permission denied"), LikewiseError),
    ):

        def fail(*words, error=error):
            raise error

        monkeypatch.setattr(faiss, "write_index", fail)
        with pytest.raises(raised):
            likewise.send(more, "faiss", tmp_path / "i.faiss", replace=True)
        assert files_in(tmp_path) == before


def test_an_index_is_never_beside_the_table_of_another(tmp_path, monkeypatch):
    """A crash between the two files leaves an index without a table: vectors without labels, not with wrong ones."""
    pytest.importorskip("faiss", reason="needs likewise[faiss]")
    likewise.send(write_vectors(tmp_path, n=4), "faiss", tmp_path / "i.faiss")
    replace, seen = os.replace, []

    def watch(source, target):
        seen.append((os.path.basename(target), (tmp_path / "i.csv").exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    likewise.send(write_vectors(tmp_path, n=4, splits=("test",)), "faiss", tmp_path / "i.faiss", replace=True)
    assert [one for one in seen if one[0] in ("i.faiss", "i.csv")] == [("i.faiss", False), ("i.csv", False)]


def test_a_send_to_qdrant_that_was_killed_is_not_received(tmp_path, monkeypatch):
    qdrant = pytest.importorskip("qdrant_client", reason="needs likewise[qdrant]")
    with monkeypatch.context() as patch:
        patch.setattr("likewise.curate.exchange.qdrant.BLOCK_ROWS", 10)
        upsert, count = qdrant.QdrantClient.upsert, iter(range(9))

        def die(self, *words, **options):
            if next(count) == 1:
                raise SystemExit("killed")
            return upsert(self, *words, **options)

        patch.setattr(qdrant.QdrantClient, "upsert", die)
        patch.setattr(
            qdrant.QdrantClient, "delete_collection", lambda *words: None
        )  # a killed process does not tidy up
        with pytest.raises(SystemExit):
            likewise.send(write_vectors(tmp_path, n=30), "qdrant", tmp_path / "q")
    with pytest.raises(
        LikewiseError, match="qdrant: the collection must be complete, but the send of 'likewise' was inter"
    ):
        likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz")
    likewise.send(tmp_path / "z.npz", "qdrant", tmp_path / "q", replace=True)
    assert likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz").rows == 30
