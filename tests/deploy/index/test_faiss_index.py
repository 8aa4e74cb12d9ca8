"""Approximate indices: their recall is measured, rows come and go in them too, and faiss is asked for by name."""

import json
import sys
from concurrent.futures import Future

import numpy as np
import pytest
from likewise.errors import LikewiseError
from make_index import make_index, vectors

from likewise.deploy.index import stored_rows as kept
from likewise.deploy.index import vector_index
from likewise.deploy.index.vector_index import Index, lists_of, recall

pytest.importorskip("faiss", reason="approximate indices are those of faiss")


@pytest.fixture(autouse=True)
def few_queries(monkeypatch):
    monkeypatch.setattr("likewise.deploy.index.vector_index.RECALL_SAMPLES", 60)


def places(index, z, k, **how):
    return [[hit.place for hit in hits] for hits in index.find(z, k, **how)]


@pytest.mark.parametrize(("kind", "similarity"), [("hnsw", "cosine"), ("hnsw", "euclidean"), ("ivfpq", "cosine")])
def test_an_approximate_index_finds_most_and_says_how_many(kind, similarity, tmp_path):
    index = make_index(1000, similarity=similarity)
    said = index.approximate(kind, 5)
    assert said.startswith(f"{kind}: finds ") and said.endswith(" % of the true 5 nearest neighbours (60 queries)")
    share, count = recall(index, 5)
    rng_places = np.random.default_rng(0).permutation(1000)[:60].tolist()
    z = index.rows.vectors[rng_places]
    true, seen = (places(index, z, 5, but=rng_places, exact=exact) for exact in (True, False))
    by_hand = sum(len(set(a) & set(b)) for a, b in zip(true, seen, strict=True)) / 300
    assert share == by_hand and count == 60 and share > 0.9 and f"finds {100 * share:.1f} %" in said
    index.save(tmp_path / "i")
    again = Index.open(tmp_path / "i")
    assert again.kind == kind and places(again, z[:20], 5) == places(index, z[:20], 5)
    assert again.approximate(kind, 5) is None  # nothing to be done


def test_rows_come_and_go_and_there_are_always_k(tmp_path):
    index = make_index(500)
    index.approximate("hnsw", 5)
    index.save(tmp_path / "i")
    z = vectors(1, seed=8)
    first = places(index, z, 120)[0]
    index.remove([*first[:100]])
    assert places(index, z, 20)[0] == first[100:120]  # a hundred nearer ones are gone
    new = index.add(np.repeat(z, 3, 0), ["gull"] * 3, [""] * 3)
    assert places(index, z, 5)[0] == [*new, *first[100:102]]  # not in faiss yet, and found all the same
    assert len(places(index, z, 1000)[0]) == 403
    assert places(index, z, 4, label="gull")[0] == new.tolist()
    again = Index.open(tmp_path / "i")
    assert places(again, z, 5) == places(index, z, 5)
    assert "finds 100.0 %" in again.approximate("hnsw", 5) and again.graph.upto == 503
    assert places(again, z, 5) == places(index, z, 5) and len(list((tmp_path / "i").glob("*.faiss"))) == 1
    assert again.approximate("exact", 5) is None and not list((tmp_path / "i").glob("*.faiss"))
    assert Index.open(tmp_path / "i").kind == "exact"


def test_late_rows_hide_no_nearer_ones(tmp_path):
    index = make_index(1000)
    index.approximate("hnsw", 5)
    index.save(tmp_path / "i")
    z = vectors(1, seed=8)
    first = places(index, z, 45, exact=True)[0]
    index.remove(first[:40])  # more than are proposed at first
    index.add(np.repeat(-z, 30, 0), ["gull"] * 30, [""] * 30)  # far away, and not in faiss yet
    own = index.add(z, ["gull"], [""]).tolist()
    assert places(index, z, 5, but=own)[0] == first[40:]


def test_a_damaged_graph_is_told(tmp_path, monkeypatch):
    index = make_index(100)
    index.approximate("hnsw", 5)
    index.save(tmp_path / "i")
    file = next((tmp_path / "i").glob("*.faiss"))
    whole = file.read_bytes()
    monkeypatch.setattr("faiss.read_index", lambda _: pytest.fail("faiss was given a damaged file"))
    for body in (whole[:-5], b"x" * len(whole), whole[:99] + bytes([whole[99] ^ 1]) + whole[100:], None):
        file.unlink() if body is None else file.write_bytes(body)
        with pytest.raises(LikewiseError, match=r"\.faiss is damaged .*--index hnsw"):
            Index.open(tmp_path / "i")
    again = Index.open(tmp_path / "i", "hnsw")
    assert again.graph is None and again.approximate("hnsw", 5) is not None  # as the message says
    monkeypatch.undo()
    assert Index.open(tmp_path / "i").kind == "hnsw"
    next((tmp_path / "i").glob("*.faiss")).write_bytes(b"")
    exact = Index.open(tmp_path / "i", "exact")
    exact.approximate("exact", 5)
    assert Index.open(tmp_path / "i").kind == "exact" and not list((tmp_path / "i").glob("*.faiss"))


def test_a_graph_of_other_vectors_is_told(tmp_path):
    for name, dim, count in (("a", 8, 100), ("b", 9, 100), ("c", 8, 120)):
        index = make_index(count, dim)
        index.approximate("hnsw", 5)
        index.save(tmp_path / name)
    about = json.loads((tmp_path / "a" / "index.json").read_text())
    for other in ("b", "c"):
        theirs = json.loads((tmp_path / other / "index.json").read_text())["graph"] | {"upto": 100}
        (tmp_path / "a" / "index.json").write_text(json.dumps(about | {"graph": theirs}))
        (tmp_path / "a" / theirs["file"]).write_bytes((tmp_path / other / theirs["file"]).read_bytes())
        with pytest.raises(LikewiseError, match="it belongs to other vectors"):
            Index.open(tmp_path / "a")


def test_who_opens_while_the_graph_is_replaced_tries_again(tmp_path, monkeypatch):
    index = make_index(100)
    index.approximate("hnsw", 5)
    index.save(tmp_path / "i")
    real, seen = kept.read, []

    def read(folder, checked=True):
        found = real(folder, checked)
        if not seen:  # another command changes the index after index.json was read
            seen.append(True)
            index.add(vectors(1, seed=9), ["gull"], [""])
            index.approximate("hnsw", 5)
        return found

    monkeypatch.setattr(kept, "read", read)
    again = Index.open(tmp_path / "i")
    assert again.graph.upto == 101 and len(again.rows) == 101


def test_a_page_searches_exactly_until_the_graph_is_read(tmp_path, monkeypatch):
    index, waiting = make_index(100), []
    index.approximate("hnsw", 5)
    index.save(tmp_path / "i")
    monkeypatch.setattr(vector_index, "in_background", lambda work: waiting.append((work, Future())) or waiting[-1][1])
    opened = Index.open_unchecked(tmp_path / "i")
    (first, checked), (rest, done) = waiting
    checked.set_result(first())
    assert opened.graph is None and opened.kind == "hnsw"
    assert opened.find(vectors(3, seed=9), 5) == index.find(vectors(3, seed=9), 5, exact=True)
    done.set_result(rest())
    assert opened.graph.kind == opened.kind == "hnsw" and not opened.behind
    file = tmp_path / "i" / opened.about["graph"]["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    Index.open_unchecked(tmp_path / "i")
    with pytest.raises(LikewiseError, match="its checksum does not match"):
        waiting[-1][0]()
    index.approximate("exact", 5)  # another command removes the graph after index.json was read
    assert waiting[-1][0]() is None


def test_few_rows_are_too_few_for_codes():
    with pytest.raises(LikewiseError, match="ivfpq must have at least 1000 rows, got 40"):
        make_index(40).approximate("ivfpq", 5)
    assert [lists_of(n) for n in (1000, 10**4, 10**6, 10**7)] == [25, 250, 4000, 12649]


def test_without_faiss_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(LikewiseError, match=r"hnsw needs faiss .*'likewise\[faiss\]'"):
        make_index().approximate("hnsw", 5)
