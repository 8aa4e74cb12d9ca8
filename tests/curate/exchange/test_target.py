"""What is sent: an audit, a run with and without an audit, embeddings, data; and what a tool needs."""

import csv
import json
import shutil

import numpy as np
import pytest
from exchange_rows import LABELS, write_audit, write_vectors
from likewise.config import Send
from likewise.errors import LikewiseError
from likewise.types import Items
from PIL import Image

import likewise
from likewise.curate.exchange.target import read_target


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
    found = target(run, "faiss")
    assert found.row.tolist() == [3, 4] and found.x.tolist() == x[3:5].tolist()
    assert found.columns["label"] == ["given", "other"] and found.columns["state"] == ["flagged", "ok"]
    assert found.columns["suggested"] == [LABELS[4], ""]
    assert target(run, "csv").row.tolist() == target(audit, "csv").row.tolist()  # the tool needs no vectors
    np.savez(run / "embeddings.npz", x=x[3:5], label=["a", "b"], row=[3, 4], path=["ü 3, 'a'.png", "ü 5, 'a'.png"])
    with pytest.raises(LikewiseError, match="send: the embeddings of a run must be of its audit's data, but row 4 is "):
        target(run, "faiss")
    np.savez(run / "embeddings.npz", x=x[3:5], label=["given", "other"], row=[3, 4], split=["test", "test"])
    shutil.rmtree(audit)
    assert target(run, "csv").columns["label"] == ["given", "other"]
    (run / "embeddings.npz").unlink()
    with pytest.raises(LikewiseError, match="send: the run must have an audit or embeddings, got .* with neither"):
        target(run)


def test_embeddings_of_an_audit_are_matched_by_row(tmp_path):
    audit, x = write_audit(tmp_path, n=6), np.eye(6, dtype=np.float32)
    row = np.asarray([5, 4, 3, 2, 1, 0])
    np.savez(tmp_path / "z.npz", x=x, label=[LABELS[r] for r in row], row=row)
    found = target(audit, "faiss", embeddings=tmp_path / "z.npz")
    assert found.x.argmax(1).tolist() == [5 - r for r in found.row.tolist()]
    np.savez(tmp_path / "less.npz", x=x[:5], label=[LABELS[r] for r in row[:5]], row=row[:5])
    with pytest.raises(LikewiseError, match="--embeddings must hold all 6 rows of .*, but less.npz has no row 0"):
        target(audit, "faiss", embeddings=tmp_path / "less.npz")
    np.savez(tmp_path / "other.npz", x=x, label=["a", "b"] * 3, row=row)
    with pytest.raises(LikewiseError, match="--embeddings must be of the same data, but row 3 is 'two.nlines' in"):
        target(audit, "faiss", embeddings=tmp_path / "other.npz")


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
    monkeypatch.setattr("likewise.curate.exchange.target.load_items", lambda *words, **options: items)
    found = target("toy")
    assert found.columns == {
        "label": ["owl", "wren"], "group": ["4", ""], "camera": ["a", ""], "box": ["0 1 2 3.5", ""],
        "label_clean": ["wren", "wren"],
    }  # fmt: skip


def test_what_a_tool_needs(tmp_path):
    with pytest.raises(LikewiseError, match="send: faiss must get vectors, but .* has none; give a run"):
        target(write_audit(tmp_path, n=3), "faiss")
    np.savez(tmp_path / "plain.npz", x=np.eye(2, dtype=np.float32), label=["a", "b"])
    with pytest.raises(LikewiseError, match="send: label-studio must get image files, but .* has rows without a path"):
        target(tmp_path / "plain.npz", "label-studio")
    with pytest.raises(LikewiseError, match="features: there is no file"):
        target(tmp_path / "none.npz", "faiss")


def test_a_file_of_embeddings_keeps_its_order_and_rows(tmp_path):
    found = target(write_vectors(tmp_path, n=5), "faiss")
    assert found.row.tolist() == [4, 3, 2, 1, 0] and found.similarity == "cosine"
    assert likewise.send(tmp_path / "z.npz", "csv", tmp_path / "t.csv").rows == 5
