"""Train on some classes and test on others: who is where, and who may answer."""

import dataclasses

import numpy as np
import pytest
import torch
from likewise.protocols import UnseenClasses
from likewise.types import Embedded, Items, LikewiseError

from likewise.score.retrieve import Scoring, retrieve


def items(**columns):
    y = np.repeat(np.arange(10), 4)
    return Items(
        "toy",
        y,
        tuple(map(str, range(10))),
        x=np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32),
        **columns,
    )


def test_first_half_of_the_classes_trains():
    p, data = UnseenClasses(), items()
    assert np.array_equal(p.rows(data, "train"), np.arange(20)) and np.array_equal(
        p.rows(data, "test"), np.arange(20, 40)
    )
    assert len(p.rows(data, "val")) == 0


def test_validation_is_the_last_of_the_training_classes_and_never_a_test_class():
    p, data = UnseenClasses(val=0.4), items()
    parts = {part: set(data.y[p.rows(data, part)]) for part in ("train", "val", "test")}
    assert parts == {"train": {0, 1, 2}, "val": {3, 4}, "test": {5, 6, 7, 8, 9}}


def test_the_datas_own_split_counts():
    split = np.array(["test", "val", "train", ""] * 10)
    data = items(split=split)
    p = UnseenClasses(val=0.5)
    for part in ("train", "val", "test"):
        assert np.array_equal(p.rows(data, part), np.flatnonzero(split == part))


def test_retrieve_leaves_self_and_group_out():
    group = np.arange(40) // 2  # pairs of shots
    data = items(group=group)
    p = UnseenClasses()
    rows = p.rows(data, "test")
    e = Embedded(torch.as_tensor(data.x[rows]), torch.as_tensor(data.y[rows]), torch.as_tensor(rows))
    found = retrieve(e, Scoring(data, p))
    assert (found.relevant == 2).all()  # three class mates, one of them the same listing
    for q in range(20):
        assert not set(found.row[q].tolist()) & {q, q ^ 1}
    plain = retrieve(e, Scoring(dataclasses.replace(data, group=None), p))
    assert (plain.relevant == 3).all()


def test_a_group_in_two_parts_is_an_error():
    group = np.full(40, -1)
    group[[3, 30]] = 7
    with pytest.raises(LikewiseError, match=r"1 groups are in two or more \(first: group 7\)"):
        UnseenClasses().rows(items(group=group), "train")


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="10 classes cannot be divided"):
        UnseenClasses(train=0.99).rows(items(), "train")
    with pytest.raises(LikewiseError, match="val=0.* takes all .*; lower val"):
        UnseenClasses(val=0.95).rows(items(), "train")
    with pytest.raises(LikewiseError, match="1 classes cannot be divided"):
        UnseenClasses().rows(Items("one", np.zeros(4, np.int64), ("a",)), "train")


def test_a_group_across_train_and_the_carved_validation_is_an_error_too():
    group = np.full(40, -1)
    group[[0, 19]] = 3  # classes 0 and 4; the latter goes to validation
    assert len(UnseenClasses().rows(items(group=group), "train")) == 20
    with pytest.raises(LikewiseError, match="group 3"):
        UnseenClasses(val=0.2).rows(items(group=group), "train")


def test_a_share_beside_the_datas_own_split_is_refused():
    data = items(split=np.array(["train", "test"] * 20))
    with pytest.raises(LikewiseError, match="has its own split, got train=.*; omit train"):
        UnseenClasses(train=0.9).rows(data, "train")


def test_everything_trains_whatever_its_split():
    split = np.array(["test", "val", "train", ""] * 10)
    assert UnseenClasses().has_test_split and not UnseenClasses(train=1).has_test_split
    for data, all_of_it in [(items(), np.arange(40)), (items(split=split), np.flatnonzero(split != ""))]:
        assert np.array_equal(UnseenClasses(train=1).rows(data, "train"), all_of_it)
        assert not len(UnseenClasses(train=1).rows(data, "test"))
    held = UnseenClasses(train=1, val=0.2)
    assert set(items().y[held.rows(items(), "val")]) == {8, 9} and len(held.rows(items(), "train")) == 32


def test_it_has_no_galleries_by_name():
    assert UnseenClasses().galleries(items(), np.arange(20, 40)) == ()
    with pytest.raises(LikewiseError, match="got 'shop'; use QueryGallery"):
        UnseenClasses().only("shop")
