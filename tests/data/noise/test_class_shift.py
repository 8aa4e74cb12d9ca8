"""A wrong label is the class so many numbers further, or back where there is none."""

import numpy as np
import pytest
from likewise.noise import ClassShift
from likewise.types import LikewiseError


def test_the_formula_by_hand():
    y = np.repeat(np.arange(13), 4) * 10 + 1  # numbers with gaps: places count
    noisy = ClassShift(share=1.0)(y, np.random.default_rng(0))
    for true, now in zip((y - 1) // 10, (noisy - 1) // 10, strict=True):
        assert now == (true + 5 if true + 5 <= 12 else true - 5)


def test_a_share_of_them():
    y = np.repeat(np.arange(6), 50).astype(np.int32)
    noisy = ClassShift(share=0.1, shift=3)(y, np.random.default_rng(0))
    assert (noisy != y).sum() == 30 and noisy.dtype == np.int32
    counts = {int((ClassShift(0.1, 3, exact=False)(y, np.random.default_rng(s)) != y).sum()) for s in range(8)}
    assert len(counts) > 2


def test_too_few_classes_and_bad_arguments():
    with pytest.raises(LikewiseError, match="at least 10 classes, got 9"):
        ClassShift(share=0.1)(np.arange(9), np.random.default_rng(0))
    assert (ClassShift(share=1.0)(np.arange(10), np.random.default_rng(0)) == (np.arange(10) + 5) % 10).all()


def test_several_labels_are_refused():
    with pytest.raises(LikewiseError, match="ClassShift: needs one label per sample"):
        ClassShift().change_labels(np.array([0, 0]), np.array([0, 1]), np.random.default_rng(0))
