import dataclasses

import numpy as np
import pytest
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses
from likewise.types import Items, LikewiseError

from likewise.data.images import drop
from likewise.data.protocols.splits import check_groups, rows_by_class, split_by


def items(classes=8, **columns):
    return Items("toy", np.repeat(np.arange(classes), 3), tuple(map(str, range(classes))), **columns)


@pytest.mark.parametrize(("train", "val"), [(0.5, 0.0), (0.5, 0.3), (0.25, 0.5), (0.9, 0.1)])
def test_parts_never_share_a_row_or_a_class_and_lose_none(train, val):
    data = items(20)
    parts = {p: rows_by_class(data, p, train, val) for p in ("train", "val", "test")}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(60))
    classes = [set(data.y[rows]) for rows in parts.values()]
    assert not classes[0] & classes[1] and not classes[0] & classes[2] and not classes[1] & classes[2]
    assert len(classes[0] | classes[1]) == round(train * 20)
    assert bool(classes[1]) == bool(val)


def test_rows_of_no_split_stand_nowhere():
    split = np.array(["train", "", "test"] * 8)
    data = items(split=split)
    assert len(rows_by_class(data, "train", 0.5, 0.0)) + len(rows_by_class(data, "test", 0.5, 0.0)) == 16


def test_a_group_outside_the_parts_or_of_nobody_is_no_fault():
    split = np.array(["train", "", "test"] * 8)
    group = np.full(24, -1)
    group[[0, 1]] = 5  # one in train, the other nowhere
    check_groups(items(group=group), split)
    group[2] = 5
    with pytest.raises(LikewiseError, match="1 groups are in two or more .first: group 5"):
        check_groups(items(group=group), split)


def test_a_camera_may_be_in_several_splits():
    data = items(camera=np.array(["c1", "c2", ""] * 8))
    assert len(rows_by_class(data, "train", 0.5, 0.0)) == 12


@pytest.mark.parametrize(
    "protocol",
    [UnseenClasses(val=0.3), SeenClasses(test=0.3, val=0.3, gallery="train"), ClassFolds(), QueryGallery(val=0.3)],
)
@pytest.mark.parametrize("own_split", [False, True])
def test_junk_is_in_no_split_and_its_class_counts_in_no_share(protocol, own_split):
    """The last class is junk, and so is one image of the first class."""
    data = items(13, query=np.arange(39) % 3 == 0, gallery=np.arange(39) % 3 > 0)
    junk = data.y == 12
    junk[1] = True
    split = np.where(data.y < 6, "train", "test") if own_split else None
    data = dataclasses.replace(data, split=split)
    plain = split_by(protocol, drop(data, np.flatnonzero(junk).tolist()))
    found = split_by(protocol, dataclasses.replace(data, junk=junk))
    assert (found[junk] == "").all() and (found[~junk] == plain).all() and (plain != "").all()
