"""Labels go wrong among the largest or the smallest classes."""

import numpy as np
import pytest
from likewise.noise import ClassFrequency
from likewise.types import LikewiseError
from scipy.stats import chisquare

from likewise.core.settings.spec import build

SIZES = [100, 400, 300, 200, 50]
Y = np.random.default_rng(0).permutation(np.repeat([2, 4, 6, 8, 10], SIZES))
LARGE, SMALL = {4, 6, 8}, {10, 2, 8}  # half of five classes, rounded up


@pytest.mark.parametrize(("side", "group"), [("large", LARGE), ("small", SMALL)])
@pytest.mark.parametrize("restrict", ["target", "source", "both"])
def test_who_becomes_what(side, group, restrict):
    noisy = ClassFrequency(share=0.2, side=side, restrict=restrict)(Y, np.random.default_rng(1))
    wrong = noisy != Y
    assert wrong.sum() == 210
    outside = set(np.unique(Y)) - group
    assert set(noisy[wrong]) <= group or restrict == "source"
    assert set(Y[wrong]) <= group or restrict == "target"
    if restrict == "target":
        assert set(Y[wrong]) & outside
    if restrict == "source":
        assert set(noisy[wrong]) & outside


def test_every_label_of_the_group_is_as_likely():
    y = np.repeat(np.arange(5), [4000, 3000, 3000, 100, 100])
    noisy = ClassFrequency(share=0.5)(y, np.random.default_rng(0))
    for true in range(5):
        got = np.bincount(noisy[(y == true) & (noisy != y)], minlength=5)
        others = [c for c in (0, 1, 2) if c != true]
        assert got.sum() == got[others].sum() and chisquare(got[others]).pvalue > 1e-4


def test_the_expected_share_is_that_of_all_samples():
    wrong = [
        (ClassFrequency(0.2, restrict="source", exact=False)(Y, np.random.default_rng(s)) != Y).sum() for s in range(40)
    ]
    assert len(set(wrong)) > 5 and abs(np.mean(wrong) - 210) < 4 * np.sqrt(210 / 40)


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="side must be 'large' or 'small', got 'big'"):
        build("ClassFrequency(side='big')")
    with pytest.raises(LikewiseError, match=r"group=0\.2 of 5 classes is one class"):
        ClassFrequency(group=0.2)(Y, np.random.default_rng(0))
    with pytest.raises(LikewiseError, match=r"is 525 samples, but the group has 350"):
        ClassFrequency(0.5, side="small", restrict="both")(Y, np.random.default_rng(0))
