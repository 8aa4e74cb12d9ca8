"""What evaluation writes can be read again, and says where it comes from."""

import re

import numpy as np
import pytest
import torch
from likewise.types import Embedded, Items, LikewiseError

from likewise.data.features import read_embeddings
from likewise.runs.embeddings import origin, rows_in, save_embeddings


def test_an_embedding_file_says_where_it_comes_from(run):
    said = origin(run.path / "embeddings.npz")
    assert said["checkpoint"] == "best" and said["similarity"] == "cosine"
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
    with pytest.raises(LikewiseError, match=r"similarity in z\.npz .* got 'dot'"):
        origin(tmp_path / "z.npz")
    (tmp_path / "z.npz").write_bytes(b"")
    with pytest.raises(LikewiseError, match=r"z\.npz is damaged .*save it again"):
        origin(tmp_path / "z.npz")


def test_who_asks_and_answers_is_what_the_protocol_said(tmp_path):
    ask, row = np.array([True, False, False]), torch.arange(3)
    items = Items("d", np.zeros(3, np.int64), ("a",), query=ask, gallery=~ask)
    e, made_by = Embedded(torch.eye(3), torch.zeros(3, dtype=torch.long), row), {"run": "r"}
    for sides, marked in ((None, ask), ((~ask, ask), ~ask), ((ask | True, ask | True), None)):
        save_embeddings(tmp_path / "z.npz", e, items, made_by, sides=sides)
        read = read_embeddings(str(tmp_path / "z.npz")).query
        assert (read is None) == (marked is None) and (marked is None or np.array_equal(read, marked))


def test_the_class_tree_is_stored(tmp_path):
    items = Items("d", np.array([0, 1, 0]), ("a", "b"), taxonomy={"a": ("top", "low"), "b": ("top",)})
    e = Embedded(torch.eye(3), torch.as_tensor(items.y), torch.arange(3))
    save_embeddings(tmp_path / "z.npz", e, items, {"run": "r"})
    assert read_embeddings(str(tmp_path / "z.npz")).taxonomy == items.taxonomy


def test_several_labels_are_stored(tmp_path):
    sets = {"label_name": ("a", "b"), "label_sets": ((0,), (0, 1))}
    items = Items("d", np.array([0, 1, 0]), ("a", "a|b"), **sets)
    e = Embedded(torch.eye(3), torch.as_tensor(items.y), torch.arange(3))
    save_embeddings(tmp_path / "z.npz", e, items, {"run": "r"})
    read = read_embeddings(str(tmp_path / "z.npz"))
    assert read.label_sets == items.label_sets and read.label_name == items.label_name and read.y.tolist() == [0, 1, 0]


def test_rows_that_cannot_be_written_are_kept_elsewhere(tmp_path, monkeypatch):
    """The folder is removed, or its disk is full, after the rows are computed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    items = Items("toy", np.array([0, 1]), ("a", "b"), path=("\udcff.png", "b.png"), root=str(tmp_path))
    e = Embedded(torch.eye(2), torch.tensor([0, 1]), torch.arange(2))
    with pytest.raises(LikewiseError, match=r"\(No such file.*\); the computed rows are in") as raised:
        save_embeddings(tmp_path / "gone" / "z.npz", e, items, {"network": "n"})
    kept = re.search(r"rows are in (\S+): ", str(raised.value))[1]
    assert read_embeddings(kept).path == (str(tmp_path / "\udcff.png"), str(tmp_path / "b.png"))
