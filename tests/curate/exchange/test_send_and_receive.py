"""`send` and `receive`: what is sent, what a tool needs, what --into and --columns accept, and what may be overwritten."""

import csv
import errno
import json
import os
import shutil
import typing

import numpy as np
import pytest
from exchange_rows import LABELS, write_audit, write_vectors
from likewise.config import Send
from likewise.errors import LikewiseError
from likewise.types import Items
from PIL import Image

import likewise
from likewise.core.settings.label_settings import ToolName
from likewise.curate.exchange import TOOL_BY_NAME
from likewise.curate.exchange.row_records import check_free, check_source
from likewise.curate.exchange.transfer import module_of, read_target


def test_the_config_names_the_tools_of_the_registry():
    assert typing.get_args(ToolName) == tuple(TOOL_BY_NAME)
    for name in TOOL_BY_NAME:
        module = module_of(name)
        assert callable(module.send) and callable(module.receive)


def test_results_show_themselves(tmp_path):
    sent = likewise.send(write_vectors(tmp_path, n=5), "csv", tmp_path / "t.csv")
    assert "<td" in sent._repr_html_() and "vectors are not in a CSV table" in str(sent)
    assert "labels" in likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")._repr_html_()


def test_bad_settings(tmp_path, unchecked):
    audit = write_audit(tmp_path, n=5)
    with pytest.raises(LikewiseError, match="send: to must be"):
        likewise.send(audit, "excel", tmp_path / "t")
    with pytest.raises(LikewiseError, match="--columns .* got cvat"):
        likewise.send(audit, "cvat", tmp_path / "t", columns="label=class")
    likewise.send(audit, "csv", tmp_path / "t.csv")
    for into, reason in (
        ("t.txt", "--into must be an audit folder, a .npz file for vectors or a .csv file for labels"),
        ("none/t.csv", "the folder of --into .* does not exist"),
        ("t.npz", "a .npz file must get vectors, but csv returned none; choose --into labels.csv"),
    ):
        with pytest.raises(LikewiseError, match=f"receive: {reason}"):
            likewise.receive(tmp_path / "t.csv", "csv", tmp_path / into)


def target(place, to="csv", **settings):
    return read_target(
        Send(str(place), to, "out", **{k: str(v) if k == "embeddings" else v for k, v in settings.items()})
    )


def test_an_audit_has_the_most_suspect_rows_first(tmp_path):
    audit = write_audit(tmp_path, n=40)
    found = target(audit)
    assert found.row.tolist()[:5] == [3, 13, 23, 33, 0] and found.root == str(tmp_path / "images")
    assert found.columns["path"][0] == str(tmp_path / "images" / "ü 3, 'a'.png")
    assert target(audit, top=2).row.tolist() == [3, 13]
    assert target(audit, root="/moved").columns["path"][0] == "/moved/ü 3, 'a'.png"


def test_conflicts_come_first_and_images_that_fit_no_class_before_the_rest(tmp_path):
    audit = write_audit(tmp_path, n=6)
    with open(audit / "audit.csv", newline="", encoding="utf-8") as file:
        head, *lines = list(csv.reader(file))
    state, score = head.index("state"), head.index("score")
    lines[5][state], lines[1][state], lines[1][score] = "conflict", "off-topic", ""
    with open(audit / "audit.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *lines])
    assert target(audit).row.tolist() == [5, 3, 1, 0, 2, 4]


def test_a_run_gives_vectors_or_its_audit(tmp_path):
    run = tmp_path / "run"
    audit = write_audit(run, n=6)
    (run / "config.json").write_text(json.dumps({}))
    x = np.eye(6, dtype=np.float32)
    np.savez(run / "embeddings.npz", x=x[3:5], label=["given", "other"], row=[3, 4], split=["test", "test"])
    found = target(run, "parquet")
    assert found.row.tolist() == [3, 4] and found.x.tolist() == x[3:5].tolist()
    assert found.columns["label"] == ["given", "other"] and found.columns["state"] == ["flagged", "ok"]
    assert found.columns["suggested"] == [LABELS[4], ""]
    assert target(run, "csv").row.tolist() == target(audit, "csv").row.tolist()  # the tool needs no vectors
    np.savez(run / "embeddings.npz", x=x[3:5], label=["a", "b"], row=[3, 4], path=["ü 3, 'a'.png", "ü 5, 'a'.png"])
    with pytest.raises(LikewiseError, match="its audit's data, but row 4 is "):
        target(run, "parquet")
    np.savez(run / "embeddings.npz", x=x[3:5], label=["given", "other"], row=[3, 4], split=["test", "test"])
    shutil.rmtree(audit)
    assert target(run, "csv").columns["label"] == ["given", "other"]
    (run / "embeddings.npz").unlink()
    with pytest.raises(LikewiseError, match="an audit or embeddings, got"):
        target(run)


def test_embeddings_of_an_audit_are_matched_by_row(tmp_path):
    audit, x = write_audit(tmp_path, n=6), np.eye(6, dtype=np.float32)
    row = np.asarray([5, 4, 3, 2, 1, 0])
    np.savez(tmp_path / "z.npz", x=x, label=[LABELS[r] for r in row], row=row)
    found = target(audit, "parquet", embeddings=tmp_path / "z.npz")
    assert found.x.argmax(1).tolist() == [5 - r for r in found.row.tolist()]
    np.savez(tmp_path / "less.npz", x=x[:5], label=[LABELS[r] for r in row[:5]], row=row[:5])
    with pytest.raises(LikewiseError, match="all 6 rows of .*no row 0"):
        target(audit, "parquet", embeddings=tmp_path / "less.npz")
    np.savez(tmp_path / "other.npz", x=x, label=["a", "b"] * 3, row=row)
    with pytest.raises(LikewiseError, match="row 3 is 'two.nlines' in"):
        target(audit, "parquet", embeddings=tmp_path / "other.npz")


def test_a_folder_of_images(tmp_path):
    for name in ("owl", "wren"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / "birds" / name / "0.png")
    found = target(tmp_path / "birds", "label-studio")
    assert found.columns == {
        "path": [str(tmp_path / "birds" / n / "0.png") for n in ("owl", "wren")],
        "label": ["owl", "wren"],
    }


def test_all_columns_of_a_table_go_along(tmp_path, monkeypatch):
    items = Items(
        "toy", np.asarray([0, 1]), ("owl", "wren"), x=np.eye(2, dtype=np.float32), group=np.asarray([4, -1]),
        camera=np.asarray(["a", ""]), y_clean=np.asarray([1, 1]), box=np.asarray([[0, 1, 2, 3.5], [np.nan] * 4]),
    )  # fmt: skip
    monkeypatch.setattr("likewise.curate.exchange.transfer.load_items", lambda *words, **options: items)
    found = target("toy")
    assert found.columns == {
        "label": ["owl", "wren"], "group": ["4", ""], "camera": ["a", ""], "box": ["0 1 2 3.5", ""],
        "label_clean": ["wren", "wren"],
    }  # fmt: skip


def test_what_a_tool_needs(tmp_path):
    with pytest.raises(LikewiseError, match="parquet must get vectors"):
        target(write_audit(tmp_path, n=3), "parquet")
    np.savez(tmp_path / "plain.npz", x=np.eye(2, dtype=np.float32), label=["a", "b"])
    with pytest.raises(LikewiseError, match="label-studio must get image files"):
        target(tmp_path / "plain.npz", "label-studio")
    with pytest.raises(LikewiseError, match="features: there is no file"):
        target(tmp_path / "none.npz", "parquet")


def test_a_file_of_embeddings_keeps_its_order_and_rows(tmp_path):
    found = target(write_vectors(tmp_path, n=5), "parquet")
    assert found.row.tolist() == [4, 3, 2, 1, 0] and found.similarity == "cosine"
    assert likewise.send(tmp_path / "z.npz", "csv", tmp_path / "t.csv").rows == 5


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
        with pytest.raises(LikewiseError, match="a new file, but it exists"):
            check_free([tmp_path / "new.csv", taken], "csv", replace=False)
        check_free([taken], "csv", replace=True)
    with pytest.raises(LikewiseError, match="must be a new file, got a folder"):
        check_free([tmp_path], "csv", replace=True)
    check_source(file, "csv", "a table")
    with pytest.raises(LikewiseError, match="csv: the source must be a table"):
        check_source(tmp_path, "csv", "a table")


def test_no_tool_overwrites_a_file(tmp_path, subtests):
    audit, vectors = write_audit(tmp_path, n=4, images=True), write_vectors(tmp_path, n=4)
    cases = {  # tool -> target, place, files that it writes
        "csv": (audit, "out/t.csv", ["t.csv"]),
        "label-studio": (audit, "out", ["tasks.json", "config.xml"]),
        "cvat": (audit, "out", ["annotations.xml", "labels.json"]),
        "parquet": (vectors, "out/i.parquet", ["i.parquet"]),
    }
    for tool, (target, place, names) in cases.items():
        for name in names:
            with subtests.test(f"{tool} {name}"):
                home = tmp_path / f"{tool}-{name}"
                taken = home / "out" / name
                taken.parent.mkdir(parents=True)
                taken.write_text("work of a person")
                with pytest.raises(LikewiseError, match=f"{tool}: .*{name}' must be a new file"):
                    likewise.send(target, tool, home / place)
                assert files_in(home) == {f"out/{name}": b"work of a person"}
                likewise.send(target, tool, home / place, replace=True)
                assert files_in(home).keys() == {f"out/{one}" for one in names}
                assert taken.read_bytes() != b"work of a person"


def test_a_received_file_is_not_overwritten(tmp_path):
    likewise.send(write_vectors(tmp_path, n=4), "csv", tmp_path / "t.csv")
    (tmp_path / "u.csv").write_text("mine")
    with pytest.raises(LikewiseError, match="u.csv' must be a new file"):
        likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")
    assert (tmp_path / "u.csv").read_text() == "mine"
    likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv", replace=True)
    assert (tmp_path / "u.csv").read_text("utf-8").count("/birds/") == 4
    (tmp_path / "link.csv").symlink_to("t.csv")
    before = (tmp_path / "t.csv").read_bytes()
    for into in ("t.csv", "link.csv"):
        with pytest.raises(LikewiseError, match="must not replace what is read"):
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
        ("hugging-face", audit, "hf"), ("parquet", vectors, "i.parquet"),
    ):  # fmt: skip
        with subtests.test(tool):
            with pytest.raises(LikewiseError, match="; |Free some space"):
                likewise.send(target, tool, tmp_path / place)
            assert files_in(tmp_path) == before
    with subtests.test("receive"):
        with pytest.raises(LikewiseError, match="receive: .*; check its permissions and its disk|Free some space"):
            likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")
        assert files_in(tmp_path) == before
