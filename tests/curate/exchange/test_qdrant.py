"""Qdrant, embedded in a folder: the same nearest neighbours, and 10,000 vectors back without a changed bit."""

import numpy as np
import pytest
import torch
from exchange_rows import LABELS, assert_same_vectors, write_audit, write_vectors
from likewise.errors import LikewiseError

import likewise
from likewise.core.retrieval.ranking import rank

qdrant = pytest.importorskip("qdrant_client", reason="needs likewise[qdrant]")


def test_10000_rows_there_and_back(tmp_path):
    sent = write_vectors(tmp_path)
    assert likewise.send(sent, "qdrant", tmp_path / "q").rows == 10_000
    got = likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz")
    assert (got.rows, got.kind) == (10_000, "embeddings")
    assert_same_vectors(sent, tmp_path / "back.npz")


def test_a_search_finds_our_exact_neighbours(tmp_path):
    sent = write_vectors(tmp_path, n=500)
    likewise.send(sent, "qdrant", tmp_path / "q", name="birds")
    x, row = (np.load(sent)[name] for name in ("x", "row"))
    ours = rank(torch.as_tensor(x), torch.zeros(500, dtype=torch.long), k=10).row.numpy()
    client = qdrant.QdrantClient(path=str(tmp_path / "q"))
    for place in range(0, 500, 10):
        found = client.query_points("birds", query=x[place].tolist(), limit=11, with_payload=True).points
        assert found[0].id == row[place] == found[0].payload["row"]
        assert [point.id for point in found[1:]] == row[ours[place]].tolist()
    client.close()


def test_a_collection_is_replaced_only_on_request(tmp_path):
    likewise.send(write_vectors(tmp_path, n=20, d=8), "qdrant", tmp_path / "q")
    more = write_vectors(tmp_path, n=10, d=4)
    with pytest.raises(
        LikewiseError, match="'likewise' exists, with 20 vectors of 8 dimensions .these have 4.; choose another --name"
    ):
        likewise.send(more, "qdrant", tmp_path / "q")
    assert likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz").rows == 20
    likewise.send(more, "qdrant", tmp_path / "q", replace=True)
    likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz", replace=True)
    assert_same_vectors(more, tmp_path / "back.npz")


def test_a_failed_send_leaves_no_collection(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr(qdrant.QdrantClient, "upsert", fail)
    with pytest.raises(LikewiseError, match="qdrant: .* cannot be used .disk full"):
        likewise.send(write_vectors(tmp_path, n=20), "qdrant", tmp_path / "q")
    with pytest.raises(LikewiseError, match="there is no collection 'likewise'; there are: none"):
        likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz")


def test_an_audit_with_its_vectors_and_labels_back_as_decisions(tmp_path):
    audit, z = write_audit(tmp_path, n=50), tmp_path / "z.npz"
    x = np.eye(50, 8, dtype=np.float32)
    x[8:, 0] = 1
    np.savez(z, x=x, label=[LABELS[i % len(LABELS)] for i in range(50)], row=np.arange(50))
    likewise.send(audit, "qdrant", tmp_path / "q", embeddings=z)
    client = qdrant.QdrantClient(path=str(tmp_path / "q"))
    point = client.retrieve("likewise", [3], with_vectors=True)[0]
    assert (
        point.payload["state"] == "flagged"
        and point.payload["suggested"] == LABELS[4]
        and point.vector == x[3].tolist()
    )
    client.set_payload("likewise", {"label": "wren"}, points=[3])
    client.close()
    got = likewise.receive(tmp_path / "q", "qdrant", audit, reviewer="Ann")
    assert (got.rows, got.kind) == (1, "decisions")


def test_bad_places(tmp_path, subtests):
    sent = write_vectors(tmp_path, n=10)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x.txt").write_text("mine")
    with pytest.raises(
        LikewiseError, match="qdrant: --out must be a new folder or one of embedded Qdrant, .* holds other files"
    ):
        likewise.send(sent, "qdrant", tmp_path / "full")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["x.txt"]
    likewise.send(sent, "qdrant", tmp_path / "q")
    cases = {
        ("full", "likewise"): "the source must be a folder of embedded Qdrant",
        ("q", "birds"): "there is no collection 'birds'; there are: likewise",
    }
    for (place, name), reason in cases.items():
        with subtests.test(place), pytest.raises(LikewiseError, match=f"qdrant: {reason}"):
            likewise.receive(tmp_path / place, "qdrant", tmp_path / "back.npz", name=name)
    client = qdrant.QdrantClient(path=str(tmp_path / "q"))  # holds the lock of the folder
    with pytest.raises(LikewiseError, match="qdrant: .* cannot be used .*close other clients"):
        likewise.receive(tmp_path / "q", "qdrant", tmp_path / "back.npz")
    client.close()
    assert not (tmp_path / "back.npz").exists()


def test_a_send_to_qdrant_that_was_killed_is_not_received(tmp_path, monkeypatch):
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
