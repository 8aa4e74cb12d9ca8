"""What is reported of a confidence, by hand: detection of wrong labels, means over steps, histogram, verdicts; and losses."""

import math

import numpy as np
import pytest
import torch
from likewise.types import Relabelling, SampleWeights
from sklearn.metrics import roc_auc_score

from likewise.learn.training.noise_monitor import HISTOGRAM_BINS, LossHistory, NoiseMonitor, detection

CPU = torch.device("cpu")


def detection_by_hand(suspicion, flagged, noisy):
    n = range(len(noisy))
    wrong, right = [i for i in n if noisy[i]], [i for i in n if not noisy[i]]
    wins = sum((suspicion[i] > suspicion[j]) + 0.5 * (suspicion[i] == suspicion[j]) for i in wrong for j in right)
    hits = sum(flagged[i] for i in wrong)
    return {
        "AUROC": wins / (len(wrong) * len(right)), "recall": hits / len(wrong),
        "precision": hits / sum(flagged), "false alarms": sum(flagged[i] for i in right) / len(right),
    }  # fmt: skip


def random_case(seed, size=40, ties=True):
    rng = np.random.default_rng(seed)
    noisy = rng.random(size) < 0.3
    suspicion = rng.normal(size=size) + noisy
    return (np.round(suspicion, 1) if ties else suspicion), noisy


@pytest.mark.parametrize("seed", range(4))
def test_detection_by_hand(seed):
    suspicion, noisy = random_case(seed)
    flagged = suspicion >= 0.5
    found = detection(torch.tensor(suspicion), torch.tensor(flagged), torch.tensor(noisy))
    by_hand = detection_by_hand(suspicion, flagged, noisy)
    assert {k: float(v) for k, v in found.items()} == pytest.approx(by_hand)


@pytest.mark.parity
@pytest.mark.parametrize("ties", [False, True])
def test_auroc_is_that_of_scikit_learn(ties):
    for seed in range(5):
        suspicion, noisy = random_case(seed, 300, ties)
        found = detection(torch.tensor(suspicion), None, torch.tensor(noisy))
        assert found.keys() == {"AUROC"}
        assert float(found["AUROC"]) == pytest.approx(roc_auc_score(noisy, suspicion), abs=1e-6)


def test_what_has_no_meaning_is_nan():
    suspicion = torch.arange(4.0)
    none, every = torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)
    clean = detection(suspicion, suspicion > 1, none)
    assert clean["AUROC"].isnan() and clean["recall"].isnan()
    assert clean["false alarms"] == 0.5 and clean["precision"] == 0
    noisy = detection(suspicion, none, every)
    assert noisy["AUROC"].isnan() and noisy["false alarms"].isnan() and noisy["precision"].isnan()
    assert noisy["recall"] == 0


def test_what_is_broken_is_most_suspect():
    suspicion = torch.tensor([0.1, torch.nan, 3.0, torch.inf])
    found = detection(suspicion, None, torch.tensor([False, True, False, True]))
    assert found["AUROC"] == 1


def trust(w, suspicion=None, threshold=None):
    as_tensor = [None if v is None else torch.tensor(v) for v in (w, suspicion, threshold)]
    return SampleWeights(as_tensor[0], suspicion=as_tensor[1], threshold=as_tensor[2])


def means(watch):
    """Of what it has taken down since it was last asked."""
    return watch.means({name: float(number) for name, number in watch.take_sums().items()})


def test_means_are_over_the_steps_in_which_a_number_is_defined():
    watch = NoiseMonitor(6, np.array([True, False, False, False, False, True]), CPU)
    watch.add_batch(trust([1.0, 0.5], [2.0, 1.0], 1.5), torch.tensor([0, 1]))  # the wrong one is found
    watch.add_batch(trust([1.0, 1.0], [2.0, 1.0], 1.5), torch.tensor([2, 3]))  # nothing to find, a false alarm
    watch.add_batch(trust([0.2, 0.0], [2.0, 3.0], 9.0), torch.tensor([5, 4]))  # missed, and the order is wrong
    found = means(watch)
    assert found == pytest.approx({
        "weight": (0.75 + 1 + 0.1) / 3, "suspected share": (0.5 + 0.5 + 0) / 3, "AUROC": (1 + 0) / 2,
        "recall": (1 + 0) / 2, "precision": (1 + 0) / 2, "false alarms": (0 + 0.5 + 0) / 3,
    })  # fmt: skip
    assert means(watch) == {}
    watch.add_batch(trust([0.4, 0.6]), torch.tensor([0, 1]))
    assert means(watch) == pytest.approx({"weight": 0.5})


def test_other_numbers_of_the_log_are_no_means():
    """What `take` gave comes back among the rest of a line; what was never defined has no mean."""
    numbers = {"loss": 3.0, "sum of weight": 3.0, "count of weight": 4.0, "sum of recall": 0.0, "count of recall": 0.0}
    assert NoiseMonitor.means(numbers) == {"weight": 0.75}
    assert NoiseMonitor.means({"loss": 3.0}) == {}


def test_without_the_truth_there_is_less_to_tell():
    watch = NoiseMonitor(4, None, CPU)
    watch.add_batch(trust([1.0, 0.5], [2.0, 1.0], 1.5), torch.tensor([3, 1]))
    assert means(watch).keys() == {"weight", "suspected share"}
    shown = watch.histogram()
    assert shown["wrong"] is None and sum(shown["right"]) == 2


def test_the_histogram_by_hand():
    """Samples as last seen: seen twice, the second time counts; never seen, or without a finite number, not at all."""
    noisy = np.array([True, False, False, True, False, False])
    watch = NoiseMonitor(6, noisy, CPU)
    assert watch.histogram() is None
    watch.add_batch(trust([1.0, 1.0, 1.0, 1.0], [0.0, 60.0, 30.2, 59.6], 30.0), torch.tensor([0, 1, 2, 3]))
    watch.add_batch(trust([0.5, 0.25, 0.1], [0.3, 0.4, torch.nan], 40.0), torch.tensor([0, 2, 4]))
    shown = watch.histogram()
    low, high = 0.3, 60.0
    width = (high - low) / HISTOGRAM_BINS
    assert shown["edges"] == pytest.approx([low, high]) and len(shown["right"]) == len(shown["wrong"]) == HISTOGRAM_BINS
    right, wrong = [0] * HISTOGRAM_BINS, [0] * HISTOGRAM_BINS
    for value, is_wrong in ((0.3, True), (60.0, False), (0.4, False), (59.6, True)):
        (wrong if is_wrong else right)[min(int((value - low) / width), HISTOGRAM_BINS - 1)] += 1
    assert shown["right"] == right and shown["wrong"] == wrong
    assert shown["weight"][0] == pytest.approx((0.5 + 0.25) / 2) and shown["weight"][-1] == 1.0
    assert shown["weight"][10] is None
    assert shown["threshold"] == pytest.approx((40 + 40 + 40 + 30 + 30) / 5)  # rows 0, 2, 4 and 1, 3


def test_one_value_alone_is_a_histogram_too():
    watch = NoiseMonitor(3, None, CPU)
    watch.add_batch(trust([1.0, 1.0], [2.0, 2.0]), torch.tensor([0, 1]))
    shown = watch.histogram()
    assert sum(shown["right"]) == 2 and shown["threshold"] is None


@pytest.mark.parametrize("value", [1.0, -3e38, 1e-45, 0.0])
def test_neighbouring_numbers_are_a_histogram_too(value):
    """Constant features give suspicions that differ in their last bit; float32 has no numbers between them."""
    low = torch.tensor(value)
    watch = NoiseMonitor(3, None, CPU)
    watch.last[0] = torch.stack([low, low, torch.nextafter(low, torch.tensor(torch.inf))])
    watch.last[2] = 1.0
    shown = watch.histogram()
    assert sum(shown["right"]) == 3 and shown["edges"][0] <= float(low) and max(shown["right"]) == 2


GIVEN, CLEAN = torch.tensor([0, 1, 1, 2, 0, 1]), torch.tensor([0, 0, 1, 2, 2, 1])  # wrong: 1 and 4


def test_a_verdict_by_hand():
    watch = NoiseMonitor(6, (GIVEN != CLEAN).numpy(), CPU)
    verdict = Relabelling(
        y=torch.tensor([0, 0, 2, 2, 0, 1]), w=torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 0.5]),
        suspicion=torch.tensor([0.1, 0.9, 0.8, 0.7, 0.2, 0.0]), threshold=0.5, facts={"own": 3.0},
    )  # fmt: skip
    assert watch.relabelling_facts(verdict, GIVEN, CLEAN) == pytest.approx({
        "labels used": 5 / 6, "labels repaired": 2 / 6, "own": 3.0, "right before": 4 / 6,
        "right among used": 3 / 5, "wrong labels repaired": 1 / 2,
        "AUROC": (4 + 2) / 8, "recall": 1 / 2, "precision": 1 / 3, "false alarms": 2 / 4,
    })  # fmt: skip
    assert watch.last[2].tolist() == verdict.w.tolist() and watch.last[0].tolist() == verdict.suspicion.tolist()
    assert (watch.last[1] == 0.5).all()


def test_a_verdict_without_the_truth_tells_its_own_facts():
    watch = NoiseMonitor(6, None, CPU)
    facts = watch.relabelling_facts(Relabelling(GIVEN, torch.ones(6), facts={"own": 1.0}), GIVEN, None)
    assert facts == {"labels used": 1.0, "labels repaired": 0.0, "own": 1.0}
    assert watch.last[0].isnan().all()


def test_a_verdict_on_clean_labels_says_nothing_of_wrong_ones():
    watch = NoiseMonitor(6, np.zeros(6, bool), CPU)
    facts = watch.relabelling_facts(Relabelling(CLEAN, torch.ones(6), torch.rand(6)), CLEAN, CLEAN)
    assert facts == {"labels used": 1.0, "labels repaired": 0.0, "right before": 1.0, "right among used": 1.0}
    assert not any(math.isnan(v) for v in facts.values())


def test_nothing_waits_for_an_accelerator():
    """Nobody looks at a value on the way: there is none to look at."""
    bare = {"device": "meta"}
    score, known, row = torch.empty(8, **bare), torch.empty(8, dtype=torch.bool, **bare), torch.arange(8, **bare)
    assert all(value.is_meta for value in detection(score, known, known).values())
    history = LossHistory(torch.zeros(2, 9, **bare))
    history.add_batch(score, row)
    assert history.sums.is_meta
    with pytest.raises(RuntimeError):
        bool(score[0] > 0)


def test_losses_over_time_by_hand():
    """The mean over the times a sample was in a batch of that pass, in one batch twice too; NaN where it was in none."""
    history = LossHistory(torch.zeros(2, 4))
    history.end_epoch(0)
    history.add_batch(torch.tensor([1.0, 4.0, 2.0]), torch.tensor([2, 0, 2]))
    history.add_batch(torch.tensor([6.0, 0.5], dtype=torch.float64), torch.tensor([2, 1]))
    history.end_epoch(2)
    history.end_epoch(2)  # no step since
    history.add_batch(torch.tensor([7.0]), torch.tensor([3]))
    history.end_epoch(3)
    assert history.step == [2, 3]
    assert history.loss[0].tolist() == pytest.approx([4.0, 0.5, 3.0, math.nan], nan_ok=True)
    assert history.loss[1].tolist() == pytest.approx([math.nan, math.nan, math.nan, 7.0], nan_ok=True)
