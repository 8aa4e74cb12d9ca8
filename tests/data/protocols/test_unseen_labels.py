"""Whole labels are held out: a row with one of them never trains."""

import numpy as np
import pytest
from likewise.protocols import UnseenClasses, UnseenLabels
from likewise.types import Items, LikewiseError

SETS = ((0,), (0, 1), (1,), (1, 3), (2,), (2, 3), (3,))
NAMES = ("a", "b", "c", "d")


def items(**columns) -> Items:
    y = columns.pop("y", np.arange(7))
    names = tuple("|".join(NAMES[label] for label in one) for one in SETS)
    return Items("toy", y, names, x=np.zeros((len(y), 1), np.float32), label_name=NAMES, label_sets=SETS, **columns)


def sets(protocol: UnseenLabels, part: str, data: Items | None = None) -> list[str]:
    data = data or items()
    return [data.class_name[data.y[row]] for row in protocol.rows(data, part)]


def test_a_row_with_a_held_out_label_is_a_test_row():
    assert sets(UnseenLabels(), "train") == ["a", "a|b", "b"]
    assert sets(UnseenLabels(), "test") == ["b|d", "c", "c|d", "d"] and sets(UnseenLabels(), "val") == []
    assert sets(UnseenLabels(test=0.25), "test") == ["b|d", "c|d", "d"]
    assert sets(UnseenLabels(mixed="drop"), "test") == ["c", "c|d", "d"]
    assert sets(UnseenLabels(names=("b",)), "test") == ["a|b", "b", "b|d"]


def test_validation_labels_do_not_train_either():
    held = UnseenLabels(test=0.25, val=0.3)
    assert sets(held, "train") == ["a", "a|b", "b"] and sets(held, "val") == ["c"]
    assert sets(UnseenLabels(test=0.25, val=0.6), "train") == ["a"]
    assert sets(UnseenLabels(test=0.25, val=0.6, mixed="drop"), "val") == ["b", "c"]


def test_with_single_labels_it_is_unseen_classes():
    plain = Items("toy", np.repeat(np.arange(10), 3), tuple(map(str, range(10))), x=np.zeros((30, 1), np.float32))
    for part in ("train", "val", "test"):
        one, other = (
            UnseenLabels(test=0.4, val=0.5).rows(plain, part),
            UnseenClasses(train=0.6, val=0.5).rows(plain, part),
        )
        assert np.array_equal(one, other)


def test_the_split_of_the_data_wins_and_noise_does_not_move_rows():
    split = np.array(["test", "train", "train", "", "train", "test", "train"])
    assert sets(UnseenLabels(), "test", items(split=split)) == ["a", "c|d"]
    assert sets(UnseenLabels(val=0.3), "val", items(split=split)) == ["d"]
    with pytest.raises(LikewiseError, match="test and names must be omitted"):
        UnseenLabels(test=0.2).rows(items(split=split), "test")
    noisy = items(y=np.zeros(7, np.int64), y_clean=np.arange(7))
    assert UnseenLabels().rows(noisy, "train").tolist() == [0, 1, 2]


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="no label 'dd'; did you mean 'd'"):
        UnseenLabels(names=("dd",)).rows(items(), "test")
    with pytest.raises(LikewiseError, match="every row of 'toy'"):
        UnseenLabels(names=NAMES).rows(items(), "test")
    with pytest.raises(LikewiseError, match="1 labels cannot be divided"):
        UnseenLabels().rows(Items("one", np.zeros(4, np.int64), ("a",)), "train")
