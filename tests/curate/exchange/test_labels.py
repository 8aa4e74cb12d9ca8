"""Several labels per row: every tool that tests can run gets them as a list or joined, and returns them unchanged."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from exchange_rows import PNG, arrays
from likewise.config import Receive, Send

from likewise.curate.exchange.label_studio import decision, labelling_config
from likewise.curate.exchange.row_records import arrow_kind, class_of, from_cells, write_labels
from likewise.curate.exchange.transfer import receive, send
from likewise.data import load
from likewise.data.features import read_embeddings

SETS = ("dress|red", '<b>|"quoted"', "red|shirt|鳥", "dress|red")
LISTS = [["dress", "red"], ['"quoted"', "<b>"], ["red", "shirt", "鳥"], ["dress", "red"]]


@pytest.fixture
def vectors(tmp_path):
    x = np.eye(4, dtype=np.float32)
    paths = []
    for row in range(4):
        paths.append(tmp_path / f"{row}.png")
        paths[-1].write_bytes(PNG)
    file = tmp_path / "z.npz"
    np.savez(
        file,
        x=x,
        labels=np.asarray(SETS),
        row=np.arange(4),
        path=np.asarray(list(map(str, paths))),
    )
    assert read_embeddings(str(file)).label_sets is not None
    return file


def sorted_lists(cells):
    return [sorted(str(cell).split("|")) for cell in cells]


def test_vectors_come_back_with_their_labels(vectors, tmp_path):
    send(Send(str(vectors), to="parquet", out=str(tmp_path / "out.parquet")))
    receive(Receive(str(tmp_path / "out.parquet"), from_="parquet", into=str(tmp_path / "back.npz")))
    assert sorted_lists(arrays(tmp_path / "back.npz")["labels"]) == LISTS
    assert read_embeddings(str(tmp_path / "back.npz")).label_name == ('"quoted"', "<b>", "dress", "red", "shirt", "鳥")


def test_csv_and_hugging_face_carry_them(vectors, tmp_path):
    send(Send(str(vectors), to="csv", out=str(tmp_path / "out.csv")))
    receive(Receive(str(tmp_path / "out.csv"), from_="csv", into=str(tmp_path / "again.csv")))
    head, *lines = (tmp_path / "again.csv").read_text().splitlines()
    assert "labels" in head.split(",") and "label" not in head.split(",") and len(lines) == 4
    pytest.importorskip("datasets")
    send(Send(str(vectors), to="hugging-face", out=str(tmp_path / "hub")))
    receive(Receive(str(tmp_path / "hub"), from_="hugging-face", into=str(tmp_path / "hub.csv")))
    assert "dress|red" in (tmp_path / "hub.csv").read_text("utf-8")


def test_label_studio_lets_several_be_chosen(vectors, tmp_path):
    send(Send(str(vectors), to="label-studio", out=str(tmp_path / "studio")))
    config = ElementTree.parse(tmp_path / "studio" / "config.xml")
    asked = next(one for one in config.iter("Choices") if one.get("name") == "new_label")
    assert asked.get("choice") == "multiple"
    assert [one.get("value") for one in asked] == ['"quoted"', "<b>", "dress", "red", "shirt", "鳥"]
    tasks = json.loads((tmp_path / "studio" / "tasks.json").read_text("utf-8"))
    assert tasks[0]["data"]["labels"] == ["dress", "red"]
    assert 'choice="single"' in labelling_config(["a"])
    assert decision("relabel", {"choices": ["red", "hat"]}, "dress|red", 1) == {
        "choice": "relabel",
        "new_label": "hat|red",
    }
    assert decision("", {"choices": ["red", "dress"]}, "dress|red", 1)["choice"] == "keep"


def test_cvat_has_a_tag_per_label(vectors, tmp_path):
    send(Send(str(vectors), to="cvat", out=str(tmp_path / "cvat")))
    top = ElementTree.parse(tmp_path / "cvat" / "annotations.xml").getroot()
    assert [sorted(tag.get("label") for tag in image.findall("tag")) for image in top.findall("image")] == LISTS
    chosen = [([], "a"), (["b"], "a"), (["red", "dress"], "dress|red"), (["red", "hat"], "dress|red")]
    assert [class_of(*one) for one in chosen] == ["", "b", "dress|red", "hat|red"]


def test_cells_of_any_form_become_lists(tmp_path):
    found = from_cells(
        {"labels": [["a", "b"], "b|c", None], "choice": ["", "relabel", "remove"], "new_label": ["", "d|e", ""]}, "x"
    )
    assert found.columns["labels"] == [["a", "b"], ["b", "c"], []] and found.columns["label"] == ["a|b", "b|c", ""]
    assert found.classes == ["a", "b", "c"]
    assert write_labels(found, tmp_path / "t.csv", "x") == 2
    assert (tmp_path / "t.csv").read_text().splitlines() == ["labels", "a|b", "d|e"]
    assert str(arrow_kind("labels")).startswith("list") and str(arrow_kind("score")) == "double"


def test_a_data_set_is_sent_with_its_labels(tmp_path):
    data = "glyph_labels(size=16, per_class=2, classes=4)"
    assert load(data).label_sets is not None
    send(Send(data, to="csv", out=str(tmp_path / "g.csv")))
    assert "labels" in (tmp_path / "g.csv").read_text("utf-8").splitlines()[0]
