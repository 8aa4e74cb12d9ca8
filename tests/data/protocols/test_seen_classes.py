"""Held-out images of every class: shares by hand, groups, the same cut every time, and training images that answer."""

import dataclasses

import numpy as np
import pytest
import torch
from likewise.protocols import SeenClasses
from likewise.types import Embedded, Items, LikewiseError

from likewise.score.retrieve import Scoring, retrieve

PARTS = ("train", "val", "test")


def items(counts, **columns):
    y = np.repeat(np.arange(len(counts)), counts)
    y = np.random.default_rng(1).permutation(y)
    x = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    return Items("toy", y, tuple(map(str, range(len(counts)))), x=x, **columns)


def counts(data, rows):
    return np.bincount(data.y[rows], minlength=data.classes).tolist()


def test_shares_of_every_class_by_hand():
    data = items([1, 2, 3, 5, 10, 20])
    part = SeenClasses(test=0.2, val=0.25)
    rows = {name: part.rows(data, name) for name in PARTS}
    assert counts(data, rows["test"]) == [0, 1, 1, 1, 2, 4]
    assert counts(data, rows["val"]) == [
        0,
        0,
        1,
        1,
        2,
        4,
    ]  # a quarter of 1 1 2 4 8 16, one at least, and never the last
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(41))
    plain = SeenClasses()
    assert counts(data, plain.rows(data, "train")) == [1, 1, 2, 4, 8, 16]
    assert len(plain.rows(data, "val")) == 0


def test_the_seed_is_the_cut():
    data = items([10] * 8)
    first = SeenClasses(seed=3).rows(data, "test")
    assert np.array_equal(first, SeenClasses(seed=3).rows(data, "test"))
    assert not np.array_equal(first, SeenClasses(seed=4).rows(data, "test"))
    more = [set(SeenClasses(seed=seed).rows(data, "test").tolist()) for seed in range(30)]
    assert set().union(*more) == set(range(80))  # no image is always spared


def test_labels_that_were_spoiled_later_do_not_move_the_cut():
    data = items([6] * 5)
    part = SeenClasses(val=0.3, gallery="train")
    wrong = dataclasses.replace(data, y=np.roll(data.y, 3), y_clean=data.y)
    for name in PARTS:
        assert np.array_equal(part.rows(data, name), part.rows(wrong, name))
    rows = part.rows(data, "val")
    for a, b in zip(part.query_gallery(data, rows), part.query_gallery(wrong, rows), strict=True):
        assert np.array_equal(a, b)


def test_a_group_stays_together_and_every_class_keeps_a_training_image():
    rng = np.random.default_rng(5)
    for seed in range(20):
        data = items([7, 7, 7, 4, 1], group=rng.integers(-1, 9, 26))
        part = SeenClasses(test=0.3, val=0.3, seed=seed)
        where = np.full(26, "     ")
        for name in PARTS:
            where[part.rows(data, name)] = name
        for group in range(9):
            assert len(set(where[data.group == group])) <= 1
        assert min(counts(data, np.flatnonzero(where == "train"))) >= 1
        assert where[data.y == 4].tolist() == ["train"]


def test_groups_that_bind_nothing_change_nothing():
    data = items([9, 4, 30])
    alone = dataclasses.replace(data, group=np.arange(43))
    mixed = dataclasses.replace(data, group=np.where(np.arange(43) % 2, -1, np.arange(43)))
    for name in PARTS:
        want = SeenClasses(val=0.2).rows(data, name)
        assert np.array_equal(want, SeenClasses(val=0.2).rows(alone, name))
        assert np.array_equal(want, SeenClasses(val=0.2).rows(mixed, name))


def test_a_class_in_one_group_only_trains():
    data = items([6, 6])
    data = dataclasses.replace(data, group=np.where(data.y == 0, 3, -1))
    assert counts(data, SeenClasses(test=0.5).rows(data, "test")) == [0, 3]


def test_training_images_answer_and_never_ask():
    data = items([5, 5, 5, 2])
    part = SeenClasses(test=0.4, gallery="train")
    alone = SeenClasses(test=0.4)
    held, train = alone.rows(data, "test"), alone.rows(data, "train")
    rows = part.rows(data, "test")
    assert rows.tolist() == list(range(17)) and np.array_equal(part.rows(data, "train"), train)
    asks, answers = part.query_gallery(data, rows)
    assert np.array_equal(rows[asks], held) and np.array_equal(rows[answers], train)
    e = Embedded(torch.as_tensor(data.x[rows]), torch.as_tensor(data.y[rows]), torch.as_tensor(rows))
    found = retrieve(e, Scoring(data, part))
    assert rows[found.query].tolist() == held.tolist()
    for q, seen in zip(held, found.row.tolist(), strict=True):
        assert {rows[a] for a in seen if a >= 0} == set(train.tolist())
        assert int(found.relevant[held.tolist().index(q)]) == sum(data.y[t] == data.y[q] for t in train)
    assert all(side.all() for side in part.query_gallery(data, train))  # the training split by itself


def test_validation_asks_the_training_images_too():
    data = items([8, 8])
    part = SeenClasses(test=0.25, val=0.5, gallery="train")
    rows = part.rows(data, "val")
    asks, answers = part.query_gallery(data, rows)
    assert asks.sum() == 6 and answers.sum() == 6 and not (asks & answers).any()
    assert not set(rows[asks].tolist()) & set(part.rows(data, "test").tolist())
    assert len(SeenClasses(gallery="train").rows(data, "val")) == 0


def test_the_datas_own_parts_count_on_request_and_rows_of_no_part_stand_nowhere():
    data = items([4, 4, 4])
    split = np.array(["train", "", "test"] * 4)
    given = dataclasses.replace(data, y=np.arange(12) // 4, split=split)
    for name in PARTS:
        assert np.array_equal(SeenClasses(own_split=True).rows(given, name), np.flatnonzero(split == name))
    parts = [SeenClasses(test=0.5, gallery="train").rows(given, name) for name in ("train", "test")]
    assert not set(np.concatenate(parts).tolist()) & set(np.flatnonzero(split == "").tolist())
    by_class = dataclasses.replace(given, split=np.where(given.y < 2, "train", "test"))
    with pytest.raises(LikewiseError, match=r"1 of 'toy' have none \(first: 2\)"):
        SeenClasses(own_split=True).rows(by_class, "test")
    with pytest.raises(LikewiseError, match="own_split=True needs a split"):
        SeenClasses(own_split=True).rows(data, "test")


def test_held_out_images_that_cannot_answer_one_another_are_an_error():
    data = items([4, 4, 4])
    with pytest.raises(LikewiseError, match=r"raise test, or .* gallery='train'"):
        SeenClasses().rows(data, "test")
    assert len(SeenClasses(gallery="train").rows(data, "test")) == 12
