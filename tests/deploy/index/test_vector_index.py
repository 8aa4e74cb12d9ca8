"""The index: the same answers as an exhaustive search, by hand and by `core.retrieval.ranking`, while rows come and go."""

import threading

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError
from make_index import make_index, vectors

from likewise.core.retrieval.ranking import nearest
from likewise.deploy.index.vector_index import Index


def found(index, z, k, **how):
    return [[hit.place for hit in hits] for hits in index.find(z, k, **how)]


def by_hand(rows, z, k, own=None, label=None):
    scored = []
    for place in range(len(rows.vectors)):
        if rows.here[place] and place != own and (label is None or rows.label(place) == label):
            pair = [(float(a), float(b)) for a, b in zip(rows.vectors[place], z, strict=True)]
            near = sum(a * b for a, b in pair) if rows.similarity == "cosine" else -sum((a - b) ** 2 for a, b in pair)
            scored.append((-near, place))
    return [place for _, place in sorted(scored)[:k]]


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_neighbours_by_hand(similarity):
    index, z = make_index(60, similarity=similarity), vectors(5, seed=3, similarity=similarity)
    index.rows.here[[4, 9, 50]] = False
    assert found(index, z, 7) == [by_hand(index.rows, one, 7) for one in z]
    own = index.rows.vectors[:3]
    assert found(index, own, 7, but=[0, 1, None]) == [
        by_hand(index.rows, one, 7, but) for one, but in zip(own, (0, 1, None), strict=True)
    ]
    assert found(index, z, 5, label="robin") == [by_hand(index.rows, one, 5, label="robin") for one in z]
    assert [len(one) for one in found(index, z, 100)] == [57] * 5  # all there are


@pytest.mark.parity
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_rows_and_similarities_are_those_of_the_search_module(similarity):
    index = make_index(3000, 16, similarity=similarity)
    index.rows.vectors[1000:1100] = index.rows.vectors[0]  # a hundred twins: ties go to the lower row
    z = np.concatenate([index.rows.vectors[:20], vectors(20, 16, seed=9, similarity=similarity)])
    row, sim = nearest(torch.from_numpy(z), torch.from_numpy(index.rows.vectors), 30, similarity=similarity)
    hits = index.find(z, 30)
    assert [[hit.place for hit in one] for one in hits] == row.tolist()
    assert [hit.similarity for one in hits for hit in one] == pytest.approx(sim.flatten().tolist(), abs=1e-12)


def test_an_index_that_is_not_saved_does_not_change():
    with pytest.raises(LikewiseError, match="only a saved index can change"):
        make_index().remove([3])


def test_what_does_not_fit_is_told(tmp_path):
    index = make_index()
    with pytest.raises(LikewiseError, match="the query has 9 dimensions and the target 8"):
        index.find(vectors(1, 9), 5)
    with pytest.raises(LikewiseError, match="the class must be in the index, got 'wrn'"):
        index.find(vectors(1), 5, label="wrn")
    index.save(tmp_path / "i")
    with pytest.raises(LikewiseError, match="must have 8 dimensions .*, got 9"):
        index.add(vectors(1, 9), ["wren"], [""])
    with pytest.raises(LikewiseError, match="got 99, but the target"):
        index.remove([1, 99])
    assert len(index.rows) == 40  # all or nothing


def test_a_saved_index_is_not_saved_again(tmp_path):
    make_index().save(tmp_path / "i")
    again = Index.open(tmp_path / "i")
    with pytest.raises(LikewiseError, match="not a saved index, got '.*i'"):
        again.save(tmp_path / "j")
    assert not (tmp_path / "j").exists()


def test_an_index_can_be_emptied_and_filled_again(tmp_path):
    index = make_index(3)
    index.save(tmp_path / "i")
    index.remove([0, 1, 2])
    assert Index.open(tmp_path / "i").find(vectors(2), 5) == [[], []]
    index.add(vectors(1, seed=1), ["wren"], [""])
    assert found(index, vectors(1), 5) == [[3]]


def test_others_search_while_rows_come_and_go(tmp_path):
    index, wrong, stop = make_index(200), [], threading.Event()
    index.save(tmp_path / "i")

    def look():
        while not stop.is_set():
            hits = index.find(vectors(4, seed=2), 5)
            if any(len(one) != 5 for one in hits):
                wrong.append(hits)

    threads = [threading.Thread(target=look) for _ in range(3)]
    [thread.start() for thread in threads]

    def change(who):
        for turn in range(8):
            row = int(index.add(vectors(1, seed=100 * who + turn), [f"new {who}"], [""])[0])
            index.remove([row] if turn % 2 else [10 * who + turn])

    writers = [threading.Thread(target=change, args=(who,)) for who in (1, 2)]
    [thread.start() for thread in writers]
    [thread.join() for thread in writers]
    stop.set()
    [thread.join() for thread in threads]
    assert wrong == [] and len(index.rows) == 200
    again = Index.open(tmp_path / "i").rows
    assert np.array_equal(again.vectors, index.rows.vectors) and np.array_equal(again.here, index.rows.here)
    assert again.table["row"].tolist() == list(range(216))  # no number twice
