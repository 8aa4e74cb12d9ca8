"""Names of files with bytes that are not UTF-8, for every tool: back without loss, or an error before anything is written."""

import csv
import json
import os
from contextlib import closing

import numpy as np
import pytest
from exchange_rows import PNG, arrays
from likewise.config import Send
from likewise.errors import LikewiseError

import likewise
from likewise.curate.audit.read import read_findings
from likewise.curate.exchange import label_studio
from likewise.curate.exchange.row_records import from_cells
from likewise.curate.review.store import Store

ODD = os.fsdecode(b"\xffbird \xe9\xb3\xa5.png")


@pytest.fixture
def vectors(tmp_path):
    """Embeddings of two images; the name of one is not UTF-8."""
    paths = [str(tmp_path / "images" / name) for name in (ODD, "b.png")]
    (tmp_path / "images").mkdir()
    for path in paths:
        try:
            with open(path, "wb") as out:
                out.write(PNG)
        except OSError:
            pytest.skip("the file system has names in UTF-8 alone")
    np.savez(tmp_path / "z.npz", x=np.eye(2, dtype=np.float32), label=["owl", "wren"], path=paths, row=[0, 1])
    return tmp_path / "z.npz"


def made(folder):
    """Return what is in a folder beside the embeddings and the images."""
    return sorted(file.name for file in folder.iterdir() if file.name not in ("z.npz", "images"))


def test_tools_that_hold_only_utf8_refuse_before_any_work(vectors, tmp_path, subtests):
    for tool, package, reason in (
        ("hugging-face", "pyarrow", "path of row 0"),
        ("cvat", None, "names must not hold bytes that are not UTF-8"),
    ):
        with subtests.test(tool):
            if package:
                pytest.importorskip(package)
            with pytest.raises(LikewiseError, match=f"{tool}: .*{reason}.*udcff.*; rename"):
                likewise.send(vectors, tool, tmp_path / "out")
            assert made(tmp_path) == []


def test_class_names_that_xml_cannot_hold(tmp_path):
    for name, problem in (
        ("\udcff", "bytes that are not UTF-8, got '.udcff'"),
        ("wr\x01en", "control characters, got"),
    ):
        names = from_cells({"path": ["/a/b.png"], "label": [name]}, "tool")
        with pytest.raises(LikewiseError, match=f"a class name must not hold {problem}"):
            label_studio.send(names, Send("t", "label-studio", str(tmp_path / "out")))
        assert not (tmp_path / "out" / "tasks.json").exists()


def test_the_address_of_an_image_has_its_bytes():
    """Percent-encoded as in the file system; the path in the task is JSON with an escape, which Label Studio keeps."""
    from urllib.parse import quote

    one = label_studio.task({"row": 0, "path": ODD, "label": "owl"}, quote(os.fsencode(ODD)))
    assert one["data"]["image"] == "%FFbird%20%E9%B3%A5.png"
    assert json.loads(json.dumps(one))["data"]["path"] == ODD


def test_csv_and_parquet_keep_the_bytes(vectors, tmp_path):
    likewise.send(vectors, "csv", tmp_path / "t.csv")
    likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")
    assert b"\xffbird \xe9\xb3\xa5.png" in (tmp_path / "u.csv").read_bytes()
    likewise.send(vectors, "parquet", tmp_path / "z.parquet")
    likewise.receive(tmp_path / "z.parquet", "parquet", tmp_path / "back.npz")
    assert arrays(tmp_path / "back.npz")["path"].tolist() == arrays(vectors)["path"].tolist()


def test_decisions_about_such_an_image_come_back(vectors, tmp_path, subtests):
    audit = tmp_path / "audit"
    audit.mkdir()
    head = ["row", "path", "label", "score", "state", "suggested", "confidence", "margin", "reason", "split"]
    lines = [[0, ODD, "owl", 0.5, "ok", "", "", "", "", ""], [1, "b.png", "wren", 0.5, "ok", "", "", "", "", ""]]
    with open(audit / "audit.csv", "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerows([head, *lines])
    about = {"title": "birds", "root": str(tmp_path / "images"), "rows": 2, "pictures": True}
    (audit / "audit.json").write_text(json.dumps(about))
    likewise.send(audit, "csv", tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_bytes().replace(b",owl,", b",wren,")
    (tmp_path / "t.csv").write_bytes(content)
    likewise.send(audit, "label-studio", tmp_path / "studio")
    tasks = json.loads((tmp_path / "studio" / "tasks.json").read_text("utf-8"))
    for number, one in enumerate(tasks, 1):
        choice = [{"from_name": "choice", "value": {"choices": ["remove"]}}] if one["data"]["row"] == 0 else []
        one |= {"id": number, "annotations": [{"result": choice}]}
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    for tool, source, expected in (
        ("csv", "t.csv", ("relabel", "wren")),
        ("label-studio", "export.json", ("remove", "")),
    ):
        with subtests.test(tool):
            likewise.receive(tmp_path / source, tool, audit)
            with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
                (found,) = [d for d in store.current_decisions() if d.reviewer in (tool, "")]
            assert (found.item, found.choice, found.label) == ("0", *expected)
