"""How well a score finds wrong labels, by hand: every order of equals, redrawn samples one by one; and by scikit-learn."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from likewise.metrics.detection import CURVE_POINTS, _redraw, detection, paired_bootstrap, relabel_accuracy
from likewise.types import LikewiseError

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
    with pytest.raises(LikewiseError, match="detection: score must be a number for every sample, but 1 of 8 are NaN"):
        detection(broken, WRONG)
    with pytest.raises(
        LikewiseError,
        match=r"detection: score and wrong must have one entry per sample.* score \(7,\) and wrong \(8,\)",
    ):
        detection(SCORE[1:], WRONG)
    with pytest.raises(LikewiseError, match="torch.int64"):
        detection(SCORE, WRONG.long())
    for changes, words in (
        ({"metric": "F1"}, "metric must be one of AUROC, AP, recall, got 'F1'"),
        ({"resamples": 99}, "resamples must be 100 or more"),
        ({"strata": torch.zeros(3)}, r"strata must be one integer per sample, got \(3,\) for 8"),
        ({"wrong": torch.zeros(8, dtype=torch.bool)}, "there must be wrong and right labels, got 0 wrong labels of 8"),
        ({"b": broken}, "b must be a number for every sample"),
    ):
        with pytest.raises(LikewiseError, match=f"paired_bootstrap: {words}"):
            paired_bootstrap(**{"a": SCORE, "b": SCORE, "wrong": WRONG} | changes)
    with pytest.raises(
        LikewiseError,
        match=r"relabel_accuracy: all arguments must have one entry per sample, got shapes \[\(7,\), \(8,\)\]",
    ):
        relabel_accuracy(*[torch.zeros(8, dtype=torch.int64)] * 4, WRONG[1:])


@pytest.mark.parametrize(("place", "metric"), enumerate(["AUROC", "AP", "recall"]))
def test_redrawn_differences_by_hand(place, metric):
    """Every draw as a data set of its own, in which samples stand several times."""
    (a, wrong), b = some(40, 1), some(40, 2)[0]
    times = torch.cat(list(_redraw(wrong.long().numpy(), 120, seed=5)))
    each = []
    for drawn in times:
        rows = torch.repeat_interleave(torch.arange(40), drawn)
        of_a, of_b = (by_hand(score[rows], wrong[rows])[place] for score in (a, b))
        each.append(of_b - of_a)
    seen = paired_bootstrap(a, b, wrong, metric, resamples=120, seed=5)
    assert seen.mean == pytest.approx(by_hand(b, wrong)[place] - by_hand(a, wrong)[place])
    assert (seen.low, seen.high) == pytest.approx(tuple(np.quantile(each, [0.025, 0.975]))) and seen.n == 40
    other = paired_bootstrap(b, a, wrong, metric, resamples=120, seed=5)
    assert (other.low, other.high) == pytest.approx((-seen.high, -seen.low))


def test_groups_are_redrawn_from_themselves_and_blocks_change_nothing(monkeypatch):
    from likewise.metrics import detection as module

    group = np.array([2, 0, 0, 2, 2, 0, 5, 2])
    times = torch.cat(list(_redraw(group, 200, 0)))
    assert times.shape == (200, 8) and len(times.unique(dim=0)) > 100
    for number, size in ((0, 3), (2, 4), (5, 1)):
        own = times[:, torch.as_tensor(group == number)]
        assert (own.sum(1) == size).all()
        assert own.double().mean(0).tolist() == pytest.approx([1] * size, abs=0.25)
    monkeypatch.setattr(module, "RESAMPLE_BLOCK_SIZE", 8 * 7)
    assert torch.equal(torch.cat(list(_redraw(group, 200, 0))), times)


def test_a_better_score_is_seen_to_be_better():
    _, wrong = some(600, 3)
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(600, generator=g) - gap * wrong for gap in (0.5, 2.5))
    seen = paired_bootstrap(a, b, wrong, resamples=200)
    assert 0 < seen.low < seen.mean < seen.high
    assert paired_bootstrap(a, a, wrong, resamples=100)[:3] == (0, 0, 0)
    assert paired_bootstrap(a, b, wrong, resamples=200) == seen != paired_bootstrap(a, b, wrong, resamples=200, seed=1)


def test_strata_are_kept():
    """With every sample a stratum of its own, every draw is the data again."""
    (a, wrong), b = some(40, 1), some(40, 2)[0]
    seen = paired_bootstrap(a, b, wrong, strata=torch.arange(40) * 3 - 7, resamples=100)
    assert seen.low == seen.high == pytest.approx(seen.mean)
    loose = paired_bootstrap(a, b, wrong, strata=torch.arange(40) % 2, resamples=100)
    assert loose.low < loose.high


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
