"""LanceDB: a table that the package searches, and 10,000 vectors back without a changed bit."""

import numpy as np
import pytest
from exchange_rows import assert_same_vectors, write_vectors
from likewise.errors import LikewiseError

import likewise

lancedb = pytest.importorskip("lancedb", reason="needs likewise[lancedb]")


def test_10000_rows_there_and_back(tmp_path):
    sent = write_vectors(tmp_path)
    assert likewise.send(sent, "lancedb", tmp_path / "lance").rows == 10_000
    got = likewise.receive(tmp_path / "lance", "lancedb", tmp_path / "back.npz")
    assert (got.rows, got.kind) == (10_000, "embeddings")
    assert_same_vectors(sent, tmp_path / "back.npz")


def test_lancedb_itself_finds_the_nearest_rows(tmp_path):
    sent = write_vectors(tmp_path, n=300)
    likewise.send(sent, "lancedb", tmp_path / "lance", name="birds")
    x, row = (np.load(sent)[name] for name in ("x", "row"))
    table = lancedb.connect(str(tmp_path / "lance")).open_table("birds")
    for place in range(0, 300, 30):
        found = table.search(x[place]).distance_type("cosine").limit(10).to_list()
        nearest = np.argsort(-(x @ x[place]), kind="stable")[:10]
        assert [line["row"] for line in found] == row[nearest].tolist()


def test_a_table_is_replaced_only_on_request(tmp_path):
    likewise.send(write_vectors(tmp_path, n=20, d=8), "lancedb", tmp_path / "lance")
    more = write_vectors(tmp_path, n=10, d=4)
    with pytest.raises(
        LikewiseError, match="'likewise' exists, with 20 rows and vectors of 8 dimensions .these have 4."
    ):
        likewise.send(more, "lancedb", tmp_path / "lance")
    assert likewise.receive(tmp_path / "lance", "lancedb", tmp_path / "back.npz").rows == 20
    likewise.send(more, "lancedb", tmp_path / "lance", replace=True)
    likewise.receive(tmp_path / "lance", "lancedb", tmp_path / "back.npz", replace=True)
    assert_same_vectors(more, tmp_path / "back.npz")


def test_euclidean_is_remembered(tmp_path):
    np.savez(tmp_path / "raw.npz", x=np.float32([[3, 4], [0, 1]]), label=["a", "b"])
    likewise.send(tmp_path / "raw.npz", "lancedb", tmp_path / "lance", similarity="euclidean")
    likewise.receive(tmp_path / "lance", "lancedb", tmp_path / "back.npz")
    assert str(np.load(tmp_path / "back.npz")["similarity"]) == "euclidean"


def test_bad_sources(tmp_path, subtests):
    base = lancedb.connect(str(tmp_path / "lance"))
    base.create_table("plain", [{"row": 1, "label": "a"}])
    base.create_table(
        "twice", [{"row": 1, "label": "a", "vector": [1.0, 0.0]}, {"row": 1, "label": "b", "vector": [0.0, 1.0]}]
    )
    for place, name, reason in (
        ("none", "plain", "the source must be a folder of LanceDB"),
        ("lance", "birds", "there is no table 'birds'; there are: plain, twice"),
        ("lance", "plain", "the table must have vectors in the column vector, got the columns row, label"),
        ("lance", "twice", "every row must occur once, but row 1 occurs twice"),
    ):
        with subtests.test(name), pytest.raises(LikewiseError, match=f"lancedb: {reason}"):
            likewise.receive(tmp_path / place, "lancedb", tmp_path / "back.npz", name=name)
    assert not (tmp_path / "back.npz").exists()
