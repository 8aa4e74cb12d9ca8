"""faiss: a flat index that faiss itself searches, and 10,000 vectors back without a changed bit."""

import numpy as np
import pytest
from exchange_rows import assert_same_vectors, write_vectors
from likewise.errors import LikewiseError

import likewise

faiss = pytest.importorskip("faiss", reason="needs likewise[faiss]")


def test_10000_rows_there_and_back(tmp_path):
    sent = write_vectors(tmp_path)
    note = likewise.send(sent, "faiss", tmp_path / "i.faiss")
    assert note.rows == 10_000 and note.notes == (f"table of the ids: {tmp_path / 'i.csv'}",)
    got = likewise.receive(tmp_path / "i.faiss", "faiss", tmp_path / "back.npz")
    assert (got.rows, got.kind) == (10_000, "embeddings")
    assert_same_vectors(sent, tmp_path / "back.npz")


def test_faiss_itself_finds_a_row_by_its_id(tmp_path):
    sent = write_vectors(tmp_path, n=300)
    likewise.send(sent, "faiss", tmp_path / "i.faiss")
    x, row = (np.load(sent)[name] for name in ("x", "row"))
    similarity, ids = faiss.read_index(str(tmp_path / "i.faiss")).search(x[:50], 1)
    assert ids[:, 0].tolist() == row[:50].tolist()
    np.testing.assert_allclose(similarity, 1, atol=1e-6)  # unit vectors


def test_euclidean_vectors_of_any_length(tmp_path):
    np.savez(tmp_path / "raw.npz", x=np.float32([[3, 4], [0, 1], [6, 0]]), label=["a", "b", "a"])
    with pytest.raises(
        LikewiseError, match="send: vectors for the similarity cosine must have unit length, but one is off by 5"
    ):
        likewise.send(tmp_path / "raw.npz", "faiss", tmp_path / "i.faiss")
    assert not (tmp_path / "i.faiss").exists()
    likewise.send(tmp_path / "raw.npz", "faiss", tmp_path / "i.faiss", similarity="euclidean")
    assert faiss.read_index(str(tmp_path / "i.faiss")).metric_type == faiss.METRIC_L2
    likewise.receive(tmp_path / "i.faiss", "faiss", tmp_path / "back.npz")
    back = np.load(tmp_path / "back.npz")
    assert str(back["similarity"]) == "euclidean" and back["x"].tolist() == [[3, 4], [0, 1], [6, 0]]


def test_a_flat_index_of_another_program_has_no_labels(tmp_path):
    index = faiss.IndexFlatL2(3)
    index.add(np.eye(3, dtype=np.float32))
    faiss.write_index(index, str(tmp_path / "other.faiss"))
    likewise.receive(tmp_path / "other.faiss", "faiss", tmp_path / "back.npz")
    back = np.load(tmp_path / "back.npz")
    assert back["row"].tolist() == [0, 1, 2] and back["x"].tolist() == np.eye(3).tolist() and "label" not in back


def test_bad_sources(tmp_path, subtests):
    sent = write_vectors(tmp_path, n=10)
    likewise.send(sent, "faiss", tmp_path / "i.faiss")
    faiss.write_index(faiss.IndexHNSWFlat(4, 8), str(tmp_path / "hnsw.faiss"))
    faiss.write_index(faiss.IndexFlatIP(4), str(tmp_path / "empty.faiss"))
    likewise.send(sent, "faiss", tmp_path / "other.faiss")
    likewise.send(write_vectors(tmp_path, n=9), "faiss", tmp_path / "less.faiss")
    (tmp_path / "less.csv").replace(tmp_path / "other.csv")
    cases = {
        "none.faiss": "the source must be a file of faiss.write_index",
        "z.npz": "the index must be flat .* but z.npz cannot be read as one",
        "hnsw.faiss": "the index must be flat .* but hnsw.faiss cannot be read as one .type 'IHNf'",
        "empty.faiss": "must hold at least one row, got none",
        "other.faiss": "other.csv must have the 10 ids of the index",
    }
    for name, reason in cases.items():
        with subtests.test(name), pytest.raises(LikewiseError, match=f"faiss: .*{reason}"):
            likewise.receive(tmp_path / name, "faiss", tmp_path / "back.npz")
    assert not (tmp_path / "back.npz").exists()
