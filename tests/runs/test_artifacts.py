"""What evaluation writes can be read again, and says where it comes from."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from likewise.config import Train
from likewise.data.features import read_embeddings
from likewise.io.files import cache_folder
from likewise.runs.artifacts import (
    data_folders,
    find_target,
    origin,
    read_per_query,
    rows_in,
    save_embeddings,
    tell_outside,
)
from likewise.types import Embedded, Items, LikewiseError


def test_an_embedding_file_says_where_it_comes_from(run):
    said = origin(run.path / "embeddings.npz")
    assert said["which"] == "best" and said["similarity"] == "cosine"
    assert len(said["row"]) == run.scores["rows"]


def test_a_file_that_says_nothing_is_fine(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.zeros((2, 2)))
    assert origin(tmp_path / "z.npz") == {} and origin(tmp_path / "z.npy") == {}


def test_what_others_call_so_is_no_row_and_no_word(tmp_path):
    for row in (list("abc"), np.zeros((3, 2), int), [0, 1], [4, 4, 5], [0.0, 1.0, 2.0], [-1, 0, 1]):
        np.savez(tmp_path / "z.npz", x=np.zeros((3, 2)), row=row, similarity=np.ones(3))
        said = origin(tmp_path / "z.npz")
        assert list(said) == ["row"] and rows_in(said, 3).tolist() == [0, 1, 2]
    assert rows_in({"row": np.array([7, 3, 5], np.uint8)}, 3).tolist() == [7, 3, 5]
    assert rows_in({}, 2).tolist() == [0, 1]


def test_a_way_of_comparing_that_there_is_not_is_told(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.zeros((2, 2)), similarity=np.asarray("dot"))
    with pytest.raises(LikewiseError, match=r"similarity in z\.npz must be cosine or euclidean, got 'dot'"):
        origin(tmp_path / "z.npz")
    (tmp_path / "z.npz").write_bytes(b"")
    with pytest.raises(LikewiseError, match=r"z\.npz is damaged .*save it again"):
        origin(tmp_path / "z.npz")


def test_pictures_outside_the_data_are_told(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "away").symlink_to(tmp_path)
    inside = [
        str(tmp_path / "link" / "a.png"),
        str(tmp_path / "data" / "b.png"),
        str(tmp_path / "data" / "deep" / "c.png"),
    ]
    assert tell_outside(inside, [str(tmp_path / "data")]) == "" == tell_outside([], [])
    for file in (tmp_path / "data2" / "x.png", tmp_path / "x.png", tmp_path / "data" / "away" / "x.png"):
        told = tell_outside([*inside, str(file)], ["", str(tmp_path / "link")])
        assert told.startswith(f"1 of 4 pictures lie outside of its data (first: {file})")
    for data, root, folders in (
        (str(tmp_path / "data"), None, [str(tmp_path / "data")]),
        (str(tmp_path / "t.csv"), "/r", [str(tmp_path), "/r"]),
        ("hf:lab/insects", None, [str(cache_folder())]),
    ):
        assert data_folders(Train(data=data, root=root)) == folders
    assert data_folders(None) == []


def test_who_asks_and_answers_is_what_the_protocol_said(tmp_path):
    ask, row = np.array([True, False, False]), torch.arange(3)
    items = Items("d", np.zeros(3, np.int64), ("a",), query=ask, gallery=~ask)
    e, made_by = Embedded(torch.eye(3), torch.zeros(3, dtype=torch.long), row), {"run": "r"}
    for sides, marked in ((None, ask), ((~ask, ask), ~ask), ((ask | True, ask | True), None)):
        save_embeddings(tmp_path / "z.npz", e, items, made_by, sides=sides)
        read = read_embeddings(str(tmp_path / "z.npz")).query
        assert (read is None) == (marked is None) and (marked is None or np.array_equal(read, marked))


def test_a_target_that_is_not_there_is_named():
    with pytest.raises(LikewiseError, match="compare: there is no 'nowhere'"):
        find_target("nowhere", "compare")


def test_queries_come_back_as_they_were_written(run):
    found, items = (
        read_per_query(run.path / "per_query.parquet", "compare"),
        read_embeddings(str(run.path / "embeddings.npz")),
    )
    assert list(found.each) == list(run.scores["metrics"]) and found.path is None
    assert {name: value.mean() for name, value in found.each.items()} == pytest.approx(run.scores["metrics"])
    rows = origin(run.path / "embeddings.npz")["row"]
    sim = items.x.astype(np.float64) @ items.x.T.astype(np.float64)
    np.fill_diagonal(sim, -np.inf)
    assert np.array_equal(found.row, rows)
    assert np.array_equal(found.nearest[:, 0], rows[sim.argmax(1)])
    assert found.similarity[:, 0] == pytest.approx(sim.max(1), abs=1e-6)
    assert np.array_equal(found.relevant, (items.y[:, None] == items.y).sum(1) - 1)
    assert [items.class_name[v] for v in items.y] == list(found.class_name)


def test_metrics_alone_are_read_without_neighbours(run):
    whole = read_per_query(run.path / "per_query.parquet", "bench")
    some = read_per_query(run.path / "per_query.parquet", "bench", ("R@1", "nobody's"))
    assert list(some.each) == ["R@1"] and np.array_equal(some.each["R@1"], whole.each["R@1"])
    assert np.array_equal(some.row, whole.row) and some.nearest.shape == (len(whole.row), 0)


def test_paths_come_back_with_the_queries(picture_run):
    found = read_per_query(picture_run.path / "per_query.parquet", "compare")
    assert found.path[0] == "3 färg/bild 0.png" and found.class_name[0] == "3 färg" and found.label[0] == 3


def test_files_that_hold_no_queries_are_named(run, tmp_path):
    table = pq.read_table(run.path / "per_query.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing")
    pq.write_table(pa.table({"row": [1]}), tmp_path / "other.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    pq.write_table(table.take([0, 1, 1]), tmp_path / "twice.parquet")
    for name, says in [
        ("missing.parquet", "me: there is no file '.*missing.parquet'; give a run folder"),
        ("broken.parquet", "me: '.*' is not a parquet file or damaged"),
        ("other.parquet", "has no column label, class_name, relevant, nearest, nearest_similarity"),
        ("empty.parquet", "must hold one line a query, got 0 lines"),
        ("twice.parquet", "must hold one line a query, got 3 lines or a row twice"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            read_per_query(tmp_path / name, "me")
