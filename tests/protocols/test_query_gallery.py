import dataclasses

import numpy as np
import pytest
import torch

from likewise.protocols import QueryGallery
from likewise.scoring import retrieve
from likewise.types import Embedded, Items, LikewiseError


def items():
    y = np.repeat(np.arange(6), 4)
    split = np.where(y < 3, "train", "test")
    query = (split == "test") & (np.arange(24) % 4 == 0)
    gallery = (split == "test") & (np.arange(24) % 4 != 0)
    gallery[12] = True  # row 12 asks and answers
    x = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    return Items("toy", y, tuple("abcdef"), x=x, split=split, query=query, gallery=gallery)


def embedded(data, rows):
    return Embedded(torch.as_tensor(data.x[rows]), torch.as_tensor(data.y[rows]), torch.as_tensor(rows))


def test_queries_ask_and_the_gallery_answers():
    data = items()
    rows = QueryGallery().rows(data, "test")
    found = retrieve(embedded(data, rows), data, QueryGallery(), k=10)
    assert rows[found.query].tolist() == [12, 16, 20]
    for q, answers in zip(found.query.tolist(), found.row.tolist(), strict=True):
        seen = {rows[a] for a in answers if a >= 0}
        assert seen == set(np.flatnonzero(data.gallery)) - {rows[q]}
    assert found.relevant.tolist() == [3, 3, 3]
    for q in range(3):  # positions, matches and values speak of the same rows
        for place, a in enumerate(found.row[q].tolist()):
            if a >= 0:
                assert bool(found.match[q, place]) == (data.y[rows[a]] == data.y[rows[found.query[q]]])
                u, v = data.x[rows[a]].astype(float), data.x[rows[found.query[q]]].astype(float)
                assert abs(u @ v / np.linalg.norm(u) / np.linalg.norm(v) - float(found.sim[q, place])) < 1e-6


def test_a_part_without_marks_asks_and_answers_itself():
    data = items()
    rows = QueryGallery(val=0.4).rows(data, "val")
    assert set(data.y[rows]) == {2}
    found = retrieve(embedded(data, rows), data, QueryGallery(), k=2)
    assert len(found.query) == 4 and (found.relevant == 3).all()


def test_marks_that_are_missing():
    data = items()
    with pytest.raises(LikewiseError, match="marks no queries and no gallery"):
        QueryGallery().rows(dataclasses.replace(data, query=None, gallery=None), "test")
    nobody = dataclasses.replace(data, gallery=np.zeros(24, bool))
    with pytest.raises(LikewiseError, match="got 3 and 0"):
        retrieve(embedded(data, np.arange(12, 24)), nobody, QueryGallery())
