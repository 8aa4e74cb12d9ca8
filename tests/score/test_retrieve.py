"""Ranking: which rows a query can find, excluded pairs, and shares of the queries."""

import numpy as np
import pytest
import torch
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Embedded, Items, LikewiseError
from score.by_hand import assert_scores, by_hand, score, some

from likewise.score import retrieve as module
from likewise.score.retrieve import Scoring, count_relevant_rows, max_results, retrieve


def test_positions_are_those_of_the_embeddings_not_of_the_gallery():
    x = np.eye(4, dtype=np.float32)[[0, 1, 0, 1, 2, 2]]
    y = np.array([0, 1, 0, 1, 2, 2])
    query, gallery = np.array([1, 1, 0, 0, 1, 0], bool), np.array([0, 0, 1, 1, 1, 1], bool)
    items = Items("toy", y, tuple("abc"), x=x, query=query, gallery=gallery)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(6))
    found = retrieve(e, Scoring(items, QueryGallery()))
    assert found.query.tolist() == [0, 1, 4] and found.row[:, 0].tolist() == [2, 3, 5]


def test_every_share_of_the_queries_is_rounded_alike(monkeypatch):
    """Only the last query is long; whoever ranks the others must not see finer distances for that."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    x[29] *= 5000
    y, asks = np.arange(60) % 5, np.arange(60) < 30
    items = Items("toy", y, tuple("abcde"), x=x, query=asks, gallery=~asks)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(60))
    shares = []
    monkeypatch.setattr(
        module,
        "rank_in_shares",
        lambda n, some: shares.extend([some(slice(0, 15)), some(slice(15, n))]) or some(slice(n)),
    )
    alone = retrieve(e, Scoring(items, QueryGallery(), similarity="euclidean"))
    assert torch.equal(torch.cat([share.sim for share in shares]), alone.sim)
    assert torch.equal(torch.cat([share.row for share in shares]) + 30, alone.row)


def test_answers_by_hand():
    """A query is no answer to itself, and rows of its group are none either."""
    y, group = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, -1, -1, -1, -1])
    items, rows = Items("toy", y, ("a", "b", "c"), group=group), np.arange(6)
    assert count_relevant_rows(items, UnseenClasses(), rows).tolist() == [1, 1, 2, 1, 1, 0]
    every, first = np.ones(6, bool), rows == 0
    assert max_results(every, every) == 5 and max_results(first, ~first) == 5 and max_results(first, every) == 5


@pytest.mark.parametrize("by", ["row_a,row_b", "path_a,path_b", "row,other"])
def test_excluded_pairs_are_no_answers(tmp_path, by):
    x, y = some()
    x[1::2] = x[::2] + 0.001  # every picture twice
    y[1::2] = y[::2]
    paths = np.asarray([f"{i}.jpg" for i in range(60)])
    np.savez(tmp_path / "z.npz", x=x, label=y, path=paths)
    lines = [f"{i},{i + 1}" if by.startswith("row") else f"{i + 1}.jpg,{i}.jpg" for i in range(0, 60, 2)]
    (tmp_path / "twins.csv").write_text(f"{by},similarity\n" + ",1\n".join(lines) + ",1\n")
    result = score(tmp_path / "z.npz", exclude=str(tmp_path / "twins.csv"))
    assert_scores(result, by_hand(x, y, group=np.arange(60) // 2)[0])
    assert score(tmp_path / "z.npz")["metrics"]["R@1"] == 1.0 > result["metrics"]["R@1"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "row_a,row_b or path_a,path_b, got a, b"),
        ("row_a,row_b\n1,x\n", "whole numbers, counted from 0"),
        ("row_a,row_b\n1,60\n", "rows 0 to 59 of 'z', got 1 to 60"),
        ("path_a,path_b\nb.jpg,1.jpg\n", "'z' has no paths"),
    ],
)
def test_pairs_that_cannot_be_excluded(tmp_path, text, says):
    x, y = some()
    np.savez(tmp_path / "z.npz", x=x, label=y)
    (tmp_path / "twins.csv").write_text(text)
    with pytest.raises(LikewiseError, match=says):
        score(tmp_path / "z.npz", exclude=str(tmp_path / "twins.csv"))
