"""Reality-Check folds: the published table of classes, and what happens at the edges."""

import numpy as np
import pytest
from likewise.protocols import ClassFolds
from likewise.types import Items, LikewiseError


def items(classes, each=1, **columns):
    return Items("toy", np.repeat(np.arange(classes), each), tuple(map(str, range(classes))), **columns)


def classes_of(data, **arguments):
    part = ClassFolds(**arguments)
    return {name: sorted(set(data.y[part.rows(data, name)].tolist())) for name in ("train", "val", "test")}


def span(*ends):
    """Both ends included, as the table writes them."""
    return sorted(c for first, last in ends for c in range(first, last + 1))


TABLE = {
    200: [  # CUB200-2011
        (span((0, 74)), span((75, 99))),
        (span((25, 99)), span((0, 24))),
        (span((50, 99), (0, 24)), span((25, 49))),
        (span((75, 99), (0, 49)), span((50, 74))),
    ],
    196: [  # Cars196
        (span((0, 73)), span((74, 97))),
        (span((24, 97)), span((0, 23))),
        (span((49, 97), (0, 24)), span((25, 48))),
        (span((73, 97), (0, 48)), span((49, 72))),
    ],
}


@pytest.mark.parametrize("classes", TABLE)
def test_the_published_table(classes):
    data = items(classes, each=2)
    validated = set()
    for fold, (train, val) in enumerate(TABLE[classes]):
        got = classes_of(data, fold=fold)
        assert got == {"train": train, "val": val, "test": list(range(classes // 2, classes))}
        validated |= set(val)
    never = set(range(classes // 2)) - validated
    assert never == (set() if classes == 200 else {24, 73})


def test_the_products_are_cut_in_half_whatever_their_own_split_says():
    split = np.where(np.arange(22634) < 11318, "train", "test")
    data = items(22634, split=split)
    for fold in range(4):
        got = classes_of(data, fold=fold)
        assert [len(got[part]) for part in ("train", "val", "test")] == [8488, 2829, 11317]
    own = classes_of(data, own_split=True)
    assert [len(own[part]) for part in ("train", "val", "test")] == [11318 - 2829, 2829, 11316]


def test_the_datas_own_parts_are_folded_on_request():
    split = np.array(["test", "train", "val", ""] * 3)
    data = items(12, split=split)
    got = classes_of(data, folds=3, fold=1, own_split=True)
    assert got == {"train": [5, 6, 9, 10], "val": [1, 2], "test": [0, 4, 8]}  # 1 2 5 6 9 10 are folded
    assert classes_of(data, folds=2) == {"train": [0, 1], "val": [2, 4], "test": [5, 6, 8, 9, 10]}  # 3 7 11 are nowhere


def test_wrong_labels_do_not_move_the_cut_between_train_and_test():
    clean = items(8, each=2)
    spoiled = Items("toy", np.where(clean.y < 2, 2, clean.y), clean.class_name, y_clean=clean.y)  # 0 and 1 are gone
    part = ClassFolds(folds=2)
    assert part.rows(spoiled, "test").tolist() == part.rows(clean, "test").tolist() == list(range(8, 16))
    assert classes_of(spoiled, folds=2) == {"train": [2], "val": [3], "test": [4, 5, 6, 7]}


def test_an_odd_class_tests_and_class_numbers_may_have_gaps():
    data = Items("toy", np.array([3, 5, 5, 8, 9, 11, 12, 20]), tuple(map(str, range(21))))
    assert classes_of(data, folds=3) == {"train": [3, 5], "val": [8], "test": [9, 11, 12, 20]}


def test_bad_data_and_a_fold_that_does_not_exist(refused):
    refused(
        (lambda: ClassFolds(folds=2, fold=2), "got folds=2, fold=2"),
        (lambda: ClassFolds().rows(items(6), "train"), "each of the 4 folds .* only 3 classes"),
        (lambda: ClassFolds(own_split=True).rows(items(20), "train"), "own_split=True .* 'toy' has none"),
    )
    group = np.full(20, -1)
    group[[7, 9]] = 5  # both before the test half; fold 0 trains on the one and validates on the other
    with pytest.raises(LikewiseError, match="group 5"):
        ClassFolds().rows(items(20, group=group), "train")


@pytest.mark.parity
def test_validation_blocks_are_those_of_scikit_learn_where_folds_divide_the_classes():
    """DRML's script cuts the 100 classes of CUB200-2011 with KFold(4); it counts the folds from another one."""
    from sklearn.model_selection import KFold

    data = items(200)
    ours = [classes_of(data, fold=fold) for fold in range(4)]
    theirs = [(train.tolist(), val.tolist()) for train, val in KFold(4).split(np.arange(100))]
    assert [(ours[fold]["train"], ours[fold]["val"]) for fold in (1, 2, 3, 0)] == theirs
