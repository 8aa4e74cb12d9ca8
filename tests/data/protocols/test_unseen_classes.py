"""Train on some classes and test on others: who is where, and who may answer."""

import dataclasses

import numpy as np
import pytest
import torch
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses
from likewise.types import Embedded, Items, LikewiseError

from likewise.data.images import drop
from likewise.data.protocols.splits import check_groups, rows_by_class, split_by
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
    with pytest.raises(LikewiseError, match="1 class cannot be divided"):
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


def triples(classes=8, **columns):
    return Items("toy", np.repeat(np.arange(classes), 3), tuple(map(str, range(classes))), **columns)


@pytest.mark.parametrize(("train", "val"), [(0.5, 0.0), (0.5, 0.3), (0.25, 0.5), (0.9, 0.1)])
def test_parts_never_share_a_row_or_a_class_and_lose_none(train, val):
    data = triples(20)
    parts = {p: rows_by_class(data, p, train, val) for p in ("train", "val", "test")}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(60))
    classes = [set(data.y[rows]) for rows in parts.values()]
    assert not classes[0] & classes[1] and not classes[0] & classes[2] and not classes[1] & classes[2]
    assert len(classes[0] | classes[1]) == round(train * 20)
    assert bool(classes[1]) == bool(val)


def test_rows_of_no_split_stand_nowhere():
    split = np.array(["train", "", "test"] * 8)
    data = triples(split=split)
    assert len(rows_by_class(data, "train", 0.5, 0.0)) + len(rows_by_class(data, "test", 0.5, 0.0)) == 16


def test_a_group_outside_the_parts_or_of_nobody_is_no_fault():
    split = np.array(["train", "", "test"] * 8)
    group = np.full(24, -1)
    group[[0, 1]] = 5  # one in train, the other nowhere
    check_groups(triples(group=group), split)
    group[2] = 5
    with pytest.raises(LikewiseError, match="1 groups are in two or more .first: group 5"):
        check_groups(triples(group=group), split)


def test_a_camera_may_be_in_several_splits():
    data = triples(camera=np.array(["c1", "c2", ""] * 8))
    assert len(rows_by_class(data, "train", 0.5, 0.0)) == 12


@pytest.mark.parametrize(
    "protocol",
    [UnseenClasses(val=0.3), SeenClasses(test=0.3, val=0.3, gallery="train"), ClassFolds(), QueryGallery(val=0.3)],
)
@pytest.mark.parametrize("own_split", [False, True])
def test_junk_is_in_no_split_and_its_class_counts_in_no_share(protocol, own_split):
    """The last class is junk, and so is one image of the first class."""
    data = triples(13, query=np.arange(39) % 3 == 0, gallery=np.arange(39) % 3 > 0)
    junk = data.y == 12
    junk[1] = True
    split = np.where(data.y < 6, "train", "test") if own_split else None
    data = dataclasses.replace(data, split=split)
    plain = split_by(protocol, drop(data, np.flatnonzero(junk).tolist()))
    found = split_by(protocol, dataclasses.replace(data, junk=junk))
    assert (found[junk] == "").all() and (found[~junk] == plain).all() and (plain != "").all()
