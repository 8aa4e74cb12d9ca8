"""pgvector: a table of a real PostgreSQL, which the test starts; 10,000 vectors back without a changed bit."""

import numpy as np
import pytest
from exchange_rows import assert_same_vectors, write_vectors
from likewise.errors import LikewiseError

import likewise

psycopg = pytest.importorskip("psycopg", reason="needs likewise[pgvector]")
pytest.importorskip("pgvector", reason="needs likewise[pgvector]")
pytestmark = pytest.mark.process


def test_10000_rows_there_and_back(tmp_path, address):
    sent = write_vectors(tmp_path)
    assert likewise.send(sent, "pgvector", address).rows == 10_000
    got = likewise.receive(address, "pgvector", tmp_path / "back.npz")
    assert (got.rows, got.kind) == (10_000, "embeddings")
    assert_same_vectors(sent, tmp_path / "back.npz")


def test_the_server_itself_finds_the_nearest_rows(tmp_path, address):
    sent = write_vectors(tmp_path, n=300)
    likewise.send(sent, "pgvector", address, name='odd "birds"')
    x, row = (np.load(sent)[name] for name in ("x", "row"))
    with psycopg.connect(address) as connection:
        for place in range(0, 300, 30):
            text = str(x[place].tolist())
            found = connection.execute(
                'SELECT row FROM "odd ""birds""" ORDER BY embedding <=> %s::vector LIMIT 10', (text,)
            )
            nearest = np.argsort(-(x @ x[place]), kind="stable")[:10]
            assert [one for (one,) in found] == row[nearest].tolist()


def test_a_table_is_replaced_only_on_request_and_a_failed_send_changes_nothing(tmp_path, address):
    first = write_vectors(tmp_path, n=20, d=8).rename(tmp_path / "first.npz")
    likewise.send(first, "pgvector", address, name="small")
    more = write_vectors(tmp_path, n=10, d=4)
    with pytest.raises(LikewiseError, match="'small' exists, with 20 rows and vectors of 8 dimensions .these have 4."):
        likewise.send(more, "pgvector", address, name="small")
    arrays = dict(np.load(more))
    np.savez(tmp_path / "nul.npz", **arrays | {"camera": np.asarray(["a\0b"] * 10)})
    with pytest.raises(LikewiseError, match="pgvector: .* the server refused"):
        likewise.send(tmp_path / "nul.npz", "pgvector", address, name="small", replace=True)
    likewise.receive(address, "pgvector", tmp_path / "back.npz", name="small")
    assert_same_vectors(first, tmp_path / "back.npz")  # the table was not dropped
    likewise.send(more, "pgvector", address, name="small", replace=True)
    likewise.receive(address, "pgvector", tmp_path / "back.npz", name="small", replace=True)
    assert_same_vectors(more, tmp_path / "back.npz")


def test_bad_places(tmp_path, address, subtests):
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE plain (row int, label text)")
        connection.execute("CREATE TABLE mixed (row int, label text, embedding vector)")
        connection.execute("INSERT INTO mixed VALUES (0, 'a', '[1,2]'), (1, 'b', '[1,2,3]')")
        connection.execute("CREATE TABLE empty (row int, label text, embedding vector(2))")
    for source, name, reason in (
        ("birds.db", None, "the address must be postgresql://"),
        ("postgresql://ann@/postgres?host=/no/such/folder", None, "the server refused"),
        (address, "birds", "there is no table 'birds'"),
        (address, "plain", "the table must have a column embedding, got the columns row, label"),
        (address, "mixed", "all vectors must have the same dimension, got several"),
        (address, "empty", "the source must hold at least one row, got none"),
    ):
        with subtests.test(str(name)), pytest.raises(LikewiseError, match=f"pgvector: {reason}"):
            likewise.receive(source, "pgvector", tmp_path / "back.npz", name=name)
    with pytest.raises(LikewiseError, match="pgvector: a name must have at most 63 bytes"):
        likewise.send(write_vectors(tmp_path, n=3), "pgvector", address, name="n" * 64)
    assert not (tmp_path / "back.npz").exists()
