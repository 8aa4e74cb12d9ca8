"""Metrics of pairs by hand, against scikit-learn and scipy, and all pairs of a set one by one."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from likewise.metrics import verification
from likewise.types import LikewiseError
from scipy.optimize import brentq
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from likewise.score.metrics.verification import (
    NAMES,
    Operating,
    auroc,
    calibrate,
    equal_error_rate,
    knows,
    measure,
    roc,
    roc_of_set,
    tar_at_far,
    threshold_for,
    undefined_reason,
)

SIM = torch.tensor([0.9, 0.8, 0.8, 0.5, 0.5, 0.5, 0.1])
SAME = torch.tensor([True, True, False, True, False, False, False])  # 3 same, 4 different


def pairs(n=400, seed=0, steps=40):
    """Similarities with many ties."""
    g = torch.Generator().manual_seed(seed)
    same = torch.rand(n, generator=g) < 0.3
    return ((torch.randn(n, generator=g) + 1.2 * same) * steps / 4).round() / steps, same


def embeddings(n=90, dim=16, classes=5, seed=0):
    """Corners of a cube of 16 sides: cosines are multiples of 1/8, exact in float32, and tie often."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g) * 7 - 3
    flip = torch.rand(n, dim, generator=g) < 0.3
    centre = (torch.randn(64, dim, generator=g)[y + 3] > 0) ^ flip
    centre[1], y[1] = centre[0], y[0]  # twins: a cosine of 1
    return 3.0 * (1 - 2 * centre.float()), y  # of any length


def all_pairs(z, y):
    z = torch.nn.functional.normalize(z.double(), dim=1)
    couples = [(i, j) for i in range(len(y)) for j in range(i + 1, len(y))]
    return torch.stack([z[i] @ z[j] for i, j in couples]), torch.tensor([bool(y[i] == y[j]) for i, j in couples])


def test_the_curve_by_hand():
    curve = roc(SIM, SAME)
    assert curve.threshold.tolist() == [math.inf, *(float(SIM[i]) for i in (0, 1, 3, 6))]
    assert curve.tar.tolist() == [0, 1 / 3, 2 / 3, 1, 1]
    assert curve.far.tolist() == [0, 0, 1 / 4, 3 / 4, 1]


def test_the_area_by_hand():
    for sim, same in ((SIM, SAME), pairs()):
        wins = [
            1.0 if s > d else 0.5 if s == d else 0.0 for s in sim[same].tolist() for d in sim[~same].tolist()
        ]  # fmt: skip
        assert auroc(roc(sim, same)) == pytest.approx(sum(wins) / len(wins), abs=1e-12)


def test_the_equal_error_rate_by_hand():
    # from (FAR 1/4, TAR 2/3) to (3/4, 1): 1/4 + t/2 = 1 - (2/3 + t/3), so t = 1/10
    assert equal_error_rate(roc(SIM, SAME)) == pytest.approx(0.3, abs=1e-12)
    assert equal_error_rate(roc(torch.tensor([0.9, 0.1]), torch.tensor([True, False]))) == 0
    assert equal_error_rate(roc(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))) == 1
    assert equal_error_rate(roc(torch.ones(5), torch.tensor([True, False, False, True, True]))) == 0.5


def test_tar_at_far_by_hand():
    curve = roc(SIM, SAME)
    for far, expected in ((0, 1 / 3), (1e-9, 1 / 3), (0.2499, 1 / 3), (0.25, 2 / 3), (0.7, 2 / 3), (0.75, 1), (1, 1)):
        assert tar_at_far(curve, far) == expected
    assert tar_at_far(roc(torch.tensor([0.1, 0.9]), torch.tensor([True, False])), 0) == 0


def test_the_threshold_by_hand():
    at = [float(s) for s in SIM]
    assert threshold_for(SIM, SAME, 1.0) == Operating(at[0], 1.0, 1 / 3, 0.0)
    assert threshold_for(SIM, SAME, 0.6) == Operating(at[1], 2 / 3, 2 / 3, 1 / 4)
    assert threshold_for(SIM, SAME, 0.5) == Operating(at[3], 0.5, 1.0, 3 / 4)
    assert threshold_for(SIM, SAME, 0.0) == Operating(at[6], 3 / 7, 1.0, 1.0)
    # precision may fall and rise again: 1, 1/2, 2/3
    assert threshold_for(torch.tensor([3.0, 2, 1]), torch.tensor([True, False, True]), 0.6).threshold == 1


def test_a_precision_that_no_threshold_has_accepts_nothing():
    found = threshold_for(torch.tensor([0.9, 0.2]), torch.tensor([False, True]), 0.8)
    assert math.isnan(found.threshold) and math.isnan(found.precision) and found.recall == found.far == 0


@pytest.mark.parametrize("same", [True, False])
def test_one_kind_of_pairs_alone_defines_nothing(same):
    sim, same = torch.tensor([0.1, 0.5]), torch.tensor([same, same])
    curve = roc(sim, same)
    values = [auroc(curve), equal_error_rate(curve), tar_at_far(curve, 0.1), *threshold_for(sim, same, 0.5)]
    assert all(math.isnan(v) for v in values)


@pytest.mark.parity
@pytest.mark.parametrize("steps", [4, 1000])
def test_same_as_scikit_learn_and_scipy(steps):
    sim, same = pairs(steps=steps)
    curve = roc(sim, same)
    far, tar, threshold = roc_curve(same, sim, drop_intermediate=False)
    torch.testing.assert_close(curve.far, torch.tensor(far), rtol=1e-15, atol=0)
    torch.testing.assert_close(curve.tar, torch.tensor(tar), rtol=1e-15, atol=0)
    assert curve.threshold.tolist() == threshold.tolist()
    assert auroc(curve) == pytest.approx(roc_auc_score(same, sim), abs=1e-12)
    crossing = brentq(lambda x: 1 - x - np.interp(x, far, tar), 0, 1, xtol=1e-14)
    assert equal_error_rate(curve) == pytest.approx(crossing, abs=1e-9)
    precision, recall, cut = precision_recall_curve(same, sim)
    for wanted in (0.35, 0.5, 0.8):
        at = int(np.flatnonzero(precision[:-1] >= wanted)[0])  # thresholds ascend
        found = threshold_for(sim, same, wanted)
        assert found[:3] == pytest.approx((cut[at], precision[at], recall[at]), abs=1e-12)


ASKED = ["AUROC", "EER", "TAR@FAR=1E-2", "TAR@FAR=0.1", "TAR@FAR=0", "TAR@P=0.6", "threshold@P=0.6", "TAR@P=.9"]


@pytest.mark.parametrize(("tile", "few"), [(7, 0), (30, 0), (2048, 0), (2048, 2**21)])
def test_all_pairs_of_a_set_are_counted_exactly_where_cosines_are_exact(tile, few, monkeypatch):
    monkeypatch.setattr(verification, "TILE_ROWS", tile)
    monkeypatch.setattr(verification, "MAX_EXACT_PAIRS", few)
    z, y = embeddings()
    sim, same = all_pairs(z, y)
    exact, counted = roc(sim, same), roc_of_set(z, y)
    assert counted.far.equal(exact.far) and counted.tar.equal(exact.tar)
    width = 0 if few else 2 / verification.COSINE_BINS
    assert sim.max() == 1 and counted.threshold[1] == 1 - width  # the last bin holds 1 itself
    assert counted.threshold[2:].equal(exact.threshold[2:])
    point = threshold_for(sim, same, 0.6)
    assert 0 < point.recall < 1
    assert calibrate(z, y, precision=0.6) == point
    assert measure(ASKED, z, y) == {
        "AUROC": auroc(exact), "EER": equal_error_rate(exact), "TAR@FAR=1E-2": tar_at_far(exact, 0.01),
        "TAR@FAR=0.1": tar_at_far(exact, 0.1), "TAR@FAR=0": tar_at_far(exact, 0.0), "TAR@P=0.6": point.recall,
        "threshold@P=0.6": point.threshold, "TAR@P=.9": threshold_for(sim, same, 0.9).recall,
    }  # fmt: skip


def exact_area(z, y):
    """AUROC over all pairs in rational numbers: products of floats are exact, and a cosine is ordered by its square."""
    rows = [[Fraction(v) for v in row] for row in z.double().tolist()]
    length, key, same = [sum(v * v for v in row) for row in rows], [], []
    for i, j in itertools.combinations(range(len(y)), 2):
        dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        key.append(dot * abs(dot) / (length[i] * length[j]))
        same.append(bool(y[i] == y[j]))
    place = {value: rank for rank, value in enumerate(sorted(set(key)))}
    return auroc(roc(torch.tensor([float(place[one]) for one in key]), torch.tensor(same)))


def sets_with_duplicates():
    """Small sets in which vectors come again, some of them with a large common part, and some on a grid."""
    for seed in range(24):
        g = torch.Generator().manual_seed(seed)
        n, dim = (int(torch.randint(8, 20, (), generator=g)) for _ in range(2))
        z = torch.randn(n, dim, generator=g)[torch.randint(0, n // 2, (n,), generator=g)]
        z = (z, z + 5, z * 1e-3 + 1, (2 * z).round() + 0.5)[seed % 4]
        yield z, torch.arange(n) % 3


def test_duplicate_vectors_tie():
    """In exact numbers: float32 products in bins were off by up to 0.1, for bins part what is equal and join what is not."""
    for z, y in sets_with_duplicates():
        assert measure(["AUROC"], z, y)["AUROC"] == pytest.approx(exact_area(z, y), abs=1e-9)


def test_the_area_from_bins_is_as_near_as_it_says(monkeypatch):
    monkeypatch.setattr(verification, "MAX_EXACT_PAIRS", 0)
    off = []
    for z, y in sets_with_duplicates():
        sim, same = all_pairs(z, y)
        near = ((sim[same][:, None] - sim[~same]).abs() < 1e-5).double().mean()
        off.append(abs(measure(["AUROC"], z, y)["AUROC"] - exact_area(z, y)))
        assert off[-1] <= near + 1e-12
    assert max(off) > 0.01


def test_counts_of_any_set_are_right_but_for_pairs_at_the_edge_of_a_bin(monkeypatch):
    monkeypatch.setattr(verification, "MAX_EXACT_PAIRS", 0)
    g = torch.Generator().manual_seed(1)
    y = torch.randint(0, 8, (100,), generator=g)
    z = torch.randn(8, 24, generator=g)[y] + 1.5 * torch.randn(100, 24, generator=g)
    z[3], y[3] = z[4], y[4]  # twins: a cosine of 1
    sim, same = all_pairs(z, y)
    curve = roc_of_set(z, y)
    for rate, own in ((curve.tar, sim[same]), (curve.far, sim[~same])):
        count = (rate[1:] * len(own)).round()
        most, least = ((own >= (curve.threshold[1:, None] + off)).sum(1) for off in (-2e-6, 2e-6))
        assert (least <= count).all() and (count <= most).all()
    exact = roc(sim, same)
    assert auroc(curve) == pytest.approx(auroc(exact), abs=1e-4)
    assert equal_error_rate(curve) == pytest.approx(equal_error_rate(exact), abs=1e-3)
    assert calibrate(z, y, 0.8).threshold == pytest.approx(threshold_for(sim, same, 0.8).threshold, abs=1e-5)


def test_order_length_and_outside_settings_do_not_matter():
    z, y = embeddings()
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(2))
    expected = measure(ASKED, z, y)
    assert measure(ASKED, z[shuffled] * (1 + shuffled[:, None]), y[shuffled]) == expected
    with torch.autocast("cpu", torch.bfloat16):
        assert measure(ASKED, z.bfloat16().requires_grad_(), y.int()) == expected
    rough = torch.randn(60, 32, generator=torch.Generator().manual_seed(3))
    alone = roc_of_set(rough, torch.arange(60) % 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert roc_of_set(rough, torch.arange(60) % 4).threshold.equal(alone.threshold)


def test_a_set_without_same_or_different_pairs():
    z, _ = embeddings(20)
    for label in (torch.arange(20), torch.zeros(20, dtype=torch.int64)):
        assert all(math.isnan(v) for v in measure(ASKED, z, label).values())
        assert all(math.isnan(v) for v in calibrate(z, label))


def test_an_undefined_value_has_a_reason():
    y = torch.tensor([0, 0, 1, 1])
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])  # every same pair is less similar
    assert math.isnan(measure(["threshold@P=0.99"], z, y)["threshold@P=0.99"])
    assert undefined_reason("threshold@P=0.99", y) == "no threshold reaches a precision of 0.99 on these pairs"
    assert undefined_reason("EER", torch.arange(4)) == "there is no pair of one class"
    assert undefined_reason("EER", y * 0) == "there is no pair of different classes"


def test_names():
    for name in ("AUROC", "EER", "TAR@FAR=1e-3", "TAR@FAR=0.001", "TAR@FAR=1", "TAR@P=.5", "threshold@P=0.99"):
        assert knows(name), name
    for name in (
        *(n for n in NAMES if n.endswith("x")), "TAR", "TAR@FAR", "TAR@FAR=", "TAR@FAR=2", "TAR@FAR=-1",
        "TAR@FAR=nan", "EER=1",
        "threshold@FAR=0.1", "auroc", "TAR@P=0.5\n", "R@1",
    ):  # fmt: skip
        assert not knows(name), name
    z, y = embeddings(20)
    with pytest.raises(LikewiseError, match="'TAR@FAR=2'; there are AUROC, EER"):
        measure(["EER", "TAR@FAR=2"], z, y)


def test_bad_input_is_refused(unchecked):
    with pytest.raises(LikewiseError, match="finite, but 1 of 2"):
        roc(torch.tensor([0.1, math.nan]), torch.tensor([True, False]))
    with pytest.raises(LikewiseError, match=r"got sim \(7,\) and same \(6,\)"):
        roc(SIM, SAME[1:])
    with pytest.raises(LikewiseError, match="same must be bool.*int64"):
        threshold_for(SIM, SAME.long(), 0.5)
    for wrong in (-0.1, 1.5, math.nan):
        with pytest.raises(LikewiseError, match="tar_at_far: far must be a share"):
            tar_at_far(roc(SIM, SAME), wrong)
        with pytest.raises(LikewiseError, match="calibrate: precision must be a share"):
            calibrate(torch.ones(3, 2), torch.arange(3), wrong)
    with pytest.raises(LikewiseError, match="verification: .* finite, but 1 of 3"):
        measure(["EER"], torch.tensor([[1.0], [math.inf], [2.0]]), torch.arange(3))


def test_pairs_of_all_rows_as_a_sample_are_all_pairs_counted_twice():
    g = torch.Generator().manual_seed(0)
    y = torch.arange(2600) % 300
    z = torch.randn(300, 8, generator=g)[y] + torch.randn(2600, 8, generator=g)
    names = ["AUROC", "EER", "TAR@FAR=0.01", "TAR@P=0.5"]
    drawn = torch.randperm(2600, generator=g)
    found = verification.measure_sample(names, z, y, drawn)
    expected = verification.measure(names, z, y)
    for name, (value, low, high) in found.items():
        assert value == low == high == pytest.approx(expected[name], abs=1e-12)
    each = [verification.measure_sample(names, z, y, drawn[i::13]) for i in range(13)]
    for name in names[:3]:
        assert np.mean([one[name][0] for one in each]) == pytest.approx(expected[name], rel=0.05)
        assert sum(one[name][1] < expected[name] < one[name][2] for one in each) >= 10
