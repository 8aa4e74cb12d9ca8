"""scores.json comes back as it was written; damage is in test_folder."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

from likewise.data.features import read_embeddings
from likewise.runs.embeddings import origin
from likewise.runs.folder import Run
from likewise.runs.scores import (
    as_per_query,
    read_hierarchy,
    read_per_query,
    read_scores,
    write_hierarchy,
    write_per_query,
    write_scores,
)


def test_scores_come_back(tmp_path):
    scores = {"metrics": {"R@1": 0.5, "NMI": 0.25}, "queries": 4}
    assert read_scores(tmp_path) is None
    write_scores(tmp_path, scores)
    assert read_scores(tmp_path) == scores == Run(tmp_path).scores


@pytest.mark.parametrize(
    "spoil",
    [
        {"metrics": None}, {"metrics": {"R@1": "0.5"}}, {"metrics": {"R@1": None}}, {"interval": {"R@1": [0.1]}},
        {"interval": {"R@1": "ab"}}, {"no_interval": "5"}, {"class_mean": [1]}, {"best_test_epoch": [None]}, {"queries": "9"},
        {"tree": {"levels": 3}}, {"labels": {"each": {"a": {"metrics": {"R@1": []}}}}}, {"galleries": {"far": {"metrics": 1}}},
        {"corrected": {"metrics": {"R@1": [0.5]}}}, {"before": None}, {"before": {"change": {"high": "x"}}},
    ],
)  # fmt: skip
def test_a_damaged_file(tmp_path, spoil):
    (tmp_path / "scores.json").write_text(json.dumps({"metrics": {"R@1": 0.5}} | spoil))
    with pytest.raises(LikewiseError, match=r"scores.json is damaged .*another type"):
        read_scores(tmp_path)


def test_clusters_come_back(tmp_path):
    assert read_hierarchy(tmp_path) is None
    classes = {"wren": ["level 2 cluster 0", "level 1 cluster 3"], "tit": ["level 2 cluster 1", "level 1 cluster 0"]}
    write_hierarchy(tmp_path, {"how": "by hand"}, classes)
    assert read_hierarchy(tmp_path) == classes
    lines = (tmp_path / "hierarchy.csv").read_text().splitlines()
    assert lines[:2] == ["class_name,level_2,level_1", "wren,level 2 cluster 0,level 1 cluster 3"]
    classes = ("[]", "{}", '{"a": "b"}', '{"a": ["b"], "c": []}')
    for damaged in ("{", "{}", *(f'{{"classes": {one}}}' for one in classes)):
        (tmp_path / "hierarchy.json").write_text(damaged)
        with pytest.raises(LikewiseError, match="hierarchy.json is damaged"):
            read_hierarchy(tmp_path)


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
        ("empty.parquet", "must have one row for each query, got 0 rows"),
        ("twice.parquet", "must have one row for each query, got 3 rows, or a query twice"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            read_per_query(tmp_path / name, "me")


def test_queries_in_memory_are_those_of_the_file_and_earlier_metrics_stay(tmp_path):
    items = Items("toy", np.array([0, 0, 1, 1]), ("a", "b\udcff"), path=("0.png", "1.png", "\udc80.png", "3.png"))
    e = Embedded(torch.eye(3), torch.tensor([0, 1, 1]), torch.tensor([1, 2, 3]))
    found = Retrieval(
        torch.arange(3), torch.tensor([[1, 2], [2, -1], [1, 0]]), torch.zeros(3, 2, dtype=torch.bool), torch.rand(3, 2),
        torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.int64), torch.zeros(0, dtype=torch.int64),
        torch.zeros(4, dtype=torch.int64),
    )  # fmt: skip
    scores = Scores({"R@1": np.array([0.0, 1.0, 1.0])}, e.row.numpy(), e.y.numpy(), np.array([1, -1, 0]))
    earlier = {"RP": np.array([0.1, 0.2, 0.3]), "R@1": np.zeros(3)}
    write_per_query(tmp_path / "q.parquet", scores, found, e, items, earlier)
    stored, kept = read_per_query(tmp_path / "q.parquet", "test"), as_per_query(scores, found, e, items)
    assert kept.nearest.tolist() == [[2, 3], [3, -1], [2, 1]] and kept.class_name.tolist() == [
        "a",
        "b\udcff",
        "b\udcff",
    ]
    for name in ("row", "label", "class_name", "relevant", "nearest", "similarity", "path", "rival"):
        assert np.array_equal(getattr(stored, name), getattr(kept, name)), name
    assert {name: value.tolist() for name, value in stored.each.items()} == {
        "RP": [0.1, 0.2, 0.3], "R@1": [0.0, 1.0, 1.0],
    }  # fmt: skip
    assert list(kept.each) == ["R@1"]
