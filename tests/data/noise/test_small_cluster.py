"""Classes dissolve into clusters that move as one, until enough labels are wrong."""

import numpy as np
import pytest
from likewise.noise import SmallCluster
from likewise.types import LikewiseError

from likewise.core.settings.spec import build

RNG = np.random.default_rng(5)
PAIRS = np.repeat(np.arange(10), 8) * 2 + 1
TWINS = (RNG.normal(size=(40, 4)) * 50).repeat(2, axis=0) + RNG.normal(size=(80, 4)) * 0.01
"""Ten classes of four pairs of twins each."""


def test_kept_classes_are_whole_and_others_gone():
    noisy = SmallCluster(features=TWINS, share=0.3)(PAIRS, np.random.default_rng(0))
    left, wrong = set(noisy), noisy != PAIRS
    assert len(left) == 7 and wrong.sum() == 24
    assert set(PAIRS[wrong]).isdisjoint(left) and set(PAIRS[~wrong]) == left


def test_twins_stay_together():
    noisy = SmallCluster(features=TWINS, share=0.5)(PAIRS, np.random.default_rng(1))
    assert (noisy[::2] == noisy[1::2]).all()
    targets = [len(set(noisy[np.equal(PAIRS, c)])) for c in set(PAIRS) - set(noisy)]
    assert max(targets) > 1  # a class is spread


def test_a_class_in_one_piece_moves_to_one_place():
    noisy = SmallCluster(features=TWINS, share=0.2, clusters=1)(PAIRS, np.random.default_rng(0))
    assert all(len(set(noisy[np.equal(PAIRS, c)])) == 1 for c in set(PAIRS))


def test_it_stops_at_the_first_class_that_passes_the_share():
    sizes = [5, 7, 9, 11, 13]
    y = np.repeat(np.arange(5), sizes)
    for seed in range(10):
        noisy = SmallCluster(features=RNG.normal(size=(45, 2)), share=0.3)(y, np.random.default_rng(seed))
        wrong = int((noisy != y).sum())
        gone = [sizes[c] for c in range(5) if c not in noisy]
        assert wrong >= 0.3 * 45 and wrong == sum(gone)
        assert wrong - max(gone) < 0.3 * 45


def test_nearest_by_hand():
    centre = np.array([[0.0, 0], [10, 0], [11, 0], [100, 0], [102, 0]])
    y = np.repeat(np.arange(5), 6)
    x = centre[y] + RNG.normal(size=(30, 2)) * 0.01
    for seed in range(5):
        noisy = SmallCluster(features=x, share=0.1, target="nearest")(y, np.random.default_rng(seed))
        (gone,) = set(range(5)) - set(noisy)
        far = [abs(centre[gone, 0] - centre[c, 0]) if c != gone else np.inf for c in range(5)]
        assert set(noisy[y == gone]) == {int(np.argmin(far))}


def test_features_of_all_rows_are_found_by_row(tmp_path):
    rows = np.arange(80)[::-1] + 20
    every = np.zeros((130, 4), np.float32)
    every[rows] = TWINS
    np.save(tmp_path / "x.npy", every)
    np.savez(tmp_path / "x.npz", x=every)
    want = SmallCluster(features=TWINS.astype(np.float32), share=0.3)(PAIRS, np.random.default_rng(0))
    for file in ("x.npy", "x.npz"):
        facts = {"rows": rows, "samples": 130}
        got = SmallCluster(features=str(tmp_path / file), share=0.3, **facts)(PAIRS, np.random.default_rng(0))
        assert np.array_equal(got, want)
    with pytest.raises(LikewiseError, match="or for all rows of the data, got 130"):  # of other data
        SmallCluster(features=every, rows=rows, samples=140)(PAIRS, np.random.default_rng(0))


def test_bad_input(tmp_path, refused):
    rng = np.random.default_rng(0)
    refused(
        (lambda: SmallCluster(features=TWINS, share=1.0)(PAIRS, rng), r"share=1\.0 would split all 10"),
        (lambda: SmallCluster(features=TWINS[:79])(PAIRS, rng), "each of the 80 samples .*, got 79"),
        (lambda: SmallCluster(features=TWINS * np.nan)(PAIRS, rng), "must be finite"),
        (lambda: SmallCluster(features=str(tmp_path / "away.npy"))(PAIRS, rng), r"away\.npy"),
    )
    np.save(tmp_path / "flat.npy", np.zeros(80))
    with pytest.raises(LikewiseError, match=r"got float64 of shape \(80,\)"):
        SmallCluster(features=str(tmp_path / "flat.npy"))(PAIRS, rng)
    with pytest.raises(LikewiseError, match="target must be 'random' or 'nearest', got 'far'"):
        build("SmallCluster(features='x.npy', target='far')")
