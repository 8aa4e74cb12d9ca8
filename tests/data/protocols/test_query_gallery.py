"""Who asks and who answers where the data says so, with one gallery or several by name."""

import dataclasses

import numpy as np
import pytest
import torch
from likewise.protocols import QueryGallery
from likewise.types import Embedded, Items, LikewiseError

from likewise.score.retrieve import Scoring, retrieve


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
    found = retrieve(embedded(data, rows), Scoring(data, QueryGallery()))
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
    found = retrieve(embedded(data, rows), Scoring(data, QueryGallery()))
    assert len(found.query) == 4 and (found.relevant == 3).all()


def test_marks_that_are_missing():
    data = items()
    with pytest.raises(LikewiseError, match="must mark queries or gallery"):
        QueryGallery().rows(dataclasses.replace(data, query=None, gallery=None), "test")
    nobody = dataclasses.replace(data, gallery=np.zeros(24, bool))
    with pytest.raises(LikewiseError, match="got 3 and 0"):
        retrieve(embedded(data, np.arange(12, 24)), Scoring(nobody, QueryGallery()))


def with_names():
    data = items()
    names = np.where(data.gallery, np.where(np.arange(24) % 2 == 1, "shop", "street"), "")
    return dataclasses.replace(data, gallery_name=names)


def test_one_gallery_of_several_answers():
    data, every = with_names(), QueryGallery()
    rows = every.rows(data, "test")
    assert every.galleries(data, rows) == ("shop", "street")
    assert every.galleries(data, every.rows(data, "train")) == ()
    for name, want in (("shop", [13, 15, 17, 19, 21, 23]), ("street", [12, 14, 18, 22])):
        part = every.only(name)
        assert np.array_equal(part.rows(data, "test"), rows)
        found = retrieve(embedded(data, rows), Scoring(data, part))
        assert rows[found.query].tolist() == [12, 16, 20]
        for q, answers in zip(found.query.tolist(), found.row.tolist(), strict=True):
            assert {rows[a] for a in answers if a >= 0} == set(want) - {rows[q]}
        assert part.galleries(data, rows) == ()  # it is one already
    assert found.relevant.tolist() == [1, 1, 1]  # in the street, 12 has only 14
    together = retrieve(embedded(data, rows), Scoring(data, every))
    assert together.relevant.tolist() == [3, 3, 3]
    assert QueryGallery(train=0.4, val=0.2, gallery="a").only("b").__dict__ == {
        "train": 0.4,
        "val": 0.2,
        "gallery": "b",
    }


def test_validation_without_marks_asks_itself_whatever_gallery_is_chosen():
    data = with_names()
    part = QueryGallery(val=0.4, gallery="shop")
    asks, answers = part.query_gallery(data, part.rows(data, "val"))
    assert asks.all() and answers.all()


def test_an_unknown_gallery_suggests_the_nearest():
    with pytest.raises(LikewiseError, match="did you mean 'shop'. It has: shop, street"):
        QueryGallery(gallery="shops").rows(with_names(), "test")
    with pytest.raises(LikewiseError, match="Write names into its column `gallery`"):
        QueryGallery(gallery="shop").query_gallery(items(), np.arange(12, 24))
