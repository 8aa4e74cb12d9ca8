import numpy as np
import pytest

from likewise.protocols.splits import check_groups, rows_by_class
from likewise.types import Items, LikewiseError


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
