"""How well a score finds wrong labels, by hand: every order of equals, redrawn samples one by one; and by scikit-learn."""

import importlib.util
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError
from scipy.special import stdtrit
from sklearn.metrics import average_precision_score, roc_auc_score

from likewise.score.metrics.detection import CURVE_POINTS, detection, relabel_accuracy

SPEC = importlib.util.spec_from_file_location(
    "score_intervals", Path(__file__).parents[3] / "benchmarks" / "score_intervals.py"
)
INTERVALS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(INTERVALS)
_leave_out, paired_jackknife = INTERVALS._leave_out, INTERVALS.paired_jackknife

SCORE = torch.tensor([0.1, 0.3, 0.3, 0.3, 0.6, 0.6, 0.9, 0.2])
WRONG = torch.tensor([True, True, False, True, False, True, False, False])


def some(n=300, seed=0, ties=True, share=0.2):
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < share
    score = rng.normal(size=n) - wrong
    return torch.tensor(np.round(score, 1) if ties else score), torch.tensor(wrong)


def found_by_hand(score, wrong):
    """Share of the wrong ones found among the first 0, 1, 2, ..., over all orders of equals."""
    score, wrong, n = score.tolist(), wrong.tolist(), len(wrong)
    total, orders = [0] * (n + 1), 0
    for order in itertools.permutations(range(n)):
        orders += 1
        for place, i in enumerate(sorted(order, key=score.__getitem__)):  # equals stay as the permutation has them
            total[place + 1] += wrong[i]
    return [count / orders / sum(wrong) for count in itertools.accumulate(total)]


def by_hand(score, wrong):
    """AUROC, AP and recall, the last by going through the equals."""
    score, wrong = score.tolist(), wrong.tolist()
    bad, good = ([s for s, w in zip(score, wrong, strict=True) if w == kind] for kind in (True, False))
    wins = sum((s < t) + 0.5 * (s == t) for s in bad for t in good)
    upto = [(sum(t <= s for t in bad), sum(t <= s for t in score)) for s in bad]
    left, found = len(bad), 0.0
    for value in sorted(set(score)):
        equals, wrong_ones = score.count(value), bad.count(value)
        found += wrong_ones * min(left, equals) / equals
        left -= min(left, equals)
    return wins / (len(bad) * len(good)), sum(b / n for b, n in upto) / len(bad), found / len(bad)


def test_every_number_by_hand():
    value, shares = detection(SCORE, WRONG), found_by_hand(SCORE, WRONG)
    assert value[:3] == pytest.approx(by_hand(SCORE, WRONG))
    assert value.recall == pytest.approx(shares[4]) == pytest.approx((1 + 2 * 2 / 3) / 4)
    assert len(value.curve) == CURVE_POINTS + 1
    for inspected in range(0, 9, 2):  # of 8 samples: every 25th point
        assert value.curve[inspected * CURVE_POINTS // 8] == [inspected / 8, pytest.approx(shares[inspected])]
    assert value.curve[12] == pytest.approx([0.12, 0.96 / 4])  # 0.96 of a sample: so much of the first, which is wrong


@pytest.mark.parametrize("seed", range(3))
def test_more_of_it_by_hand(seed):
    score, wrong = some(60, seed)
    assert detection(score, wrong)[:3] == pytest.approx(by_hand(score, wrong))


@pytest.mark.parity
@pytest.mark.parametrize("ties", [False, True])
def test_auroc_and_ap_are_those_of_scikit_learn(ties):
    for seed in range(5):
        score, wrong = some(1000, seed, ties)
        theirs = roc_auc_score(wrong, -score), average_precision_score(wrong, -score)
        assert detection(score, wrong)[:2] == pytest.approx(theirs, abs=1e-12)


def test_the_best_the_worst_and_no_order_at_all():
    wrong = torch.arange(10) < 3
    best, worst, none = (
        detection(score, wrong) for score in (torch.arange(10.0), -torch.arange(10.0), torch.zeros(10))
    )
    assert best[:3] == (1, 1, 1) and best.curve[30] == [0.3, pytest.approx(1)] and best.curve[-1] == [1, 1]
    assert worst[0] == worst.recall == 0 and worst.curve[70][1] == pytest.approx(0)
    assert none[:3] == pytest.approx((0.5, 0.3, 0.3))
    assert np.allclose(*np.transpose(none.curve))  # the diagonal


def test_the_order_of_samples_does_not_matter_and_infinite_scores_do_no_harm():
    score, wrong = some(50)
    score[3], score[7] = -torch.inf, torch.inf
    mixed = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    one, other = detection(score, wrong), detection(score[mixed], wrong[mixed])
    assert one[:3] == pytest.approx(other[:3]) and np.allclose(one.curve, other.curve)
    ranks = score.unique(return_inverse=True)[1].float()
    assert detection(ranks, wrong)[:3] == pytest.approx(one[:3])


def test_it_is_what_json_takes():
    value = detection(SCORE, WRONG)
    again = json.loads(json.dumps(value._asdict()))
    assert list(again) == ["AUROC", "AP", "recall", "curve"] and again["curve"] == value.curve


def test_what_has_no_meaning_is_nan():
    clean, spoiled = (detection(SCORE, torch.full((8,), kind)) for kind in (False, True))
    assert all(math.isnan(v) for v in clean[:3]) and all(math.isnan(y) for _, y in clean.curve)
    assert math.isnan(spoiled.AUROC) and spoiled.AP == spoiled.recall == 1
    nobody = detection(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    assert all(math.isnan(v) for v in nobody[:3])


@pytest.mark.usefixtures("unchecked")
def test_wrong_input_is_refused():
    broken = SCORE.clone()
    broken[2] = torch.nan
    with pytest.raises(LikewiseError, match="detection: score .* 1 of 8 are NaN"):
        detection(broken, WRONG)
    with pytest.raises(
        LikewiseError,
        match=r"detection: score and wrong must have one entry per sample.* score \(7,\) and wrong \(8,\)",
    ):
        detection(SCORE[1:], WRONG)
    with pytest.raises(LikewiseError, match="torch.int64"):
        detection(SCORE, WRONG.long())


@pytest.mark.parametrize(("place", "metric"), enumerate(["AUROC", "AP", "recall"]))
def test_intervals_by_hand(place, metric):
    """Every part of the data as a data set of its own: 20 groups of right labels, and each of the wrong ones."""
    (a, wrong), b = some(60, 1), some(60, 2)[0]
    seen = paired_jackknife(a, b, wrong, metric, seed=5)
    gap, variance = by_hand(b, wrong)[place] - by_hand(a, wrong)[place], 0.0
    for times in _leave_out(wrong.numpy(), seed=5):
        each = []
        for drawn in times.bool():
            of_a, of_b = (by_hand(score[drawn], wrong[drawn])[place] for score in (a, b))
            each.append(of_b - of_a)
        variance += (len(each) - 1) / len(each) * sum((one - sum(each) / len(each)) ** 2 for one in each)
    reach = float(stdtrit(int(wrong.sum()) - 1, 0.975)) * variance**0.5
    assert 10 <= wrong.sum() < 20 and seen == pytest.approx((gap, gap - reach, gap + reach, 60))
    other = paired_jackknife(b, a, wrong, metric, seed=5)
    assert (other.low, other.high) == pytest.approx((-seen.high, -seen.low))


def test_groups_are_all_samples_of_one_kind():
    wrong = np.arange(50) < 13
    right, own = _leave_out(wrong, seed=0)
    assert right.shape == (20, 50) and own.shape == (13, 50)
    assert (right[:, :13] == 1).all() and (own[:, 13:] == 1).all()
    assert ((1 - right).sum(0)[13:] == 1).all() and ((1 - own).sum(0)[:13] == 1).all()  # everyone is left out once
    assert set((1 - right).sum(1).tolist()) == {1, 2} and not torch.equal(right, next(iter(_leave_out(wrong, seed=1))))


def test_the_interval_of_auroc_has_the_variance_of_delong():
    """Groups of one sample: the variance over mean placements, of wrong and of right labels."""
    rng = np.random.default_rng(0)
    wrong = np.arange(38) < 18
    a, b = torch.tensor(rng.normal(size=38)), torch.tensor(rng.normal(size=38) - wrong)
    gaps = [(s[:18, None] < s[None, 18:]).double() for s in (a, b)]
    place = gaps[1] - gaps[0]
    variance = float(place.mean(1).var() / 18 + place.mean(0).var() / 20)
    seen = paired_jackknife(a, b, torch.tensor(wrong), "AUROC")
    assert seen.high - seen.mean == pytest.approx(float(stdtrit(17, 0.975)) * variance**0.5)


def test_a_better_score_is_seen_to_be_better():
    _, wrong = some(600, 3)
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(600, generator=g) - gap * wrong for gap in (0.5, 2.5))
    seen = paired_jackknife(a, b, wrong)
    assert 0 < seen.low < seen.mean < seen.high
    assert paired_jackknife(a, a, wrong)[:3] == (0, 0, 0)
    assert paired_jackknife(a, b, wrong) == seen != paired_jackknife(a, b, wrong, seed=1)


def test_few_labels_have_no_interval():
    few = torch.arange(60) < 9
    a, b = torch.rand(60), torch.rand(60)
    for wrong in (few, ~few):
        seen = paired_jackknife(a, b, wrong)
        assert math.isnan(seen.low) and math.isnan(seen.high) and math.isfinite(seen.mean)
    assert math.isfinite(paired_jackknife(a, b, torch.arange(60) < 10).low)


def test_equal_scores_are_rarely_told_apart():
    """150 pairs of scores with 15 wrong labels of 300. A bootstrap of AP rejects 8 to 10 % of them."""
    rng, wrong = np.random.default_rng(0), torch.arange(300) < 15
    told = 0
    for run in range(150):
        a, b = torch.tensor(rng.normal(size=(2, 300))) - 1.5 * wrong
        seen = paired_jackknife(a, b, wrong, seed=run)
        told += seen.low > 0 or seen.high < 0
    assert told / 150 < 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5


def test_relabel_accuracy_by_hand():
    true = torch.tensor([1, 1, 2, 2, 3, 3, 4])
    given = torch.tensor([1, 2, 3, 1, 2, 1, 1])  # the first is right
    first = torch.tensor([1, 1, 3, 4, 3, 1, 4])
    second = torch.tensor([2, 3, 2, 2, 1, 2, 1])
    flagged = torch.tensor([True, True, True, True, False, True, True])
    assert relabel_accuracy(first, second, true, given, flagged) == pytest.approx((2 / 5, 3 / 5))
    harmful = torch.tensor([True, False, True, False, True, False, False])
    assert relabel_accuracy(first, second, true, given, flagged, harmful) == pytest.approx((2 / 5, 1.0))
    assert all(math.isnan(v) for v in relabel_accuracy(first, second, true, true, flagged))
