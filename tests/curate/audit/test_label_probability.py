"""Probability that labels are right: the formulas by hand, planted wrong labels, and labels that cannot be scored."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError
from made_label_sets import features_of, label_matrix, noisy_matrix
from torch.nn import functional as F

from likewise.curate.audit import label_probability
from likewise.curate.audit.label_probability import (
    ALONE_REASON,
    FEW_REASON,
    MIN_LABEL_SAMPLES,
    UNEXPLAINED_REASON,
    UNINFORMATIVE_REASON,
    alone_in_class,
    among_candidates,
    class_label_quality,
    cluster_counts,
    label_set_quality,
    state_blocks,
)
from likewise.curate.audit.states import suggested_decision
from likewise.labels.label_evidence import LabelEvidence, set_evidence
from likewise.labels.label_noise import Noise, row_blocks
from likewise.labels.off_topic import OffTopic

LONG_TAIL_SIZES = [400, 200, 120, 80, 60, 40, 30, 25, 20, 18, 16, 15, 15, 12, 10, 8, 6, 5, 4, 3, 3, 2, 2, 2, 2]


def world(sizes, dim=24, wrong=0.1, apart=1.0, seed=0):
    """Gaussian classes: features, given labels, true labels; wrong labels are uniform over the other classes."""
    g = torch.Generator().manual_seed(seed)
    true = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = apart * torch.randn(len(sizes), dim, generator=g)[true] + torch.randn(len(true), dim, generator=g)
    other = (true + torch.randint(1, len(sizes), (len(true),), generator=g)) % len(sizes)
    return x, torch.where(torch.rand(len(true), generator=g) < wrong, other, true), true


class Stored(LabelEvidence):
    """Evidence with given scores (tables, samples, classes) and clusters of copies."""

    def __init__(self, table, cluster):
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "cluster", cluster)

    @property
    def classes(self):
        return self.table.shape[2]

    def blocks(self):
        return row_blocks(self.table.shape[1], self.classes, self.table.device)

    def scores(self, rows):
        return self.table[:, rows]


@pytest.fixture
def stub(monkeypatch):
    """Replace the evidence, the fitted noise and the off-topic probability."""

    def put(table, noise, off_topic=None, cluster=None):
        count = table.shape[1]
        each = Stored(table, torch.arange(count) if cluster is None else cluster)
        outside = torch.zeros(count) if off_topic is None else off_topic
        monkeypatch.setattr(label_probability, "discriminate", lambda *a, **k: (each, noise))
        monkeypatch.setattr(label_probability, "off_topic", lambda *a: OffTopic(outside, outside))

    return put


def some_noise(classes, gain=5.0):
    table = torch.rand(classes, classes, generator=torch.Generator().manual_seed(4)).double().fill_diagonal_(0)
    prior = torch.arange(1.0, classes + 1).double()
    return Noise((0.7, 1.3), 0.2, 0.1, table / table.sum(1, keepdim=True), (prior / prior.sum()).log(), gain, 100)


def posterior_by_hand(scores, own, noise):
    """P(class | features, given label) of one sample."""
    joint = []
    for c in range(scores.shape[1]):
        power = sum(w * float(s) for w, s in zip(noise.weight, scores[:, c])) + float(noise.prior[c])
        mixed = noise.any / (scores.shape[1] - 1) + noise.similar * float(noise.table[c, own])
        joint.append(math.exp(power) * (1 - noise.any - noise.similar if c == own else mixed))
    return [one / sum(joint) for one in joint]


def test_score_suggestion_confidence_and_margin_by_hand(stub):
    table = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, noise = torch.arange(9) % 4, some_noise(4)
    stub(table, noise)
    found = class_label_quality(torch.zeros(9, 2), 10 * y)
    for i, own in enumerate(y.tolist()):
        q = posterior_by_hand(table[:, i], own, noise)
        best, second = sorted((p, c) for c, p in enumerate(q) if c != own)[:-3:-1]
        assert float(found.score[i]) == pytest.approx(q[own]) and int(found.suggested[i]) == 10 * best[1]
        assert float(found.confidence[i]) == pytest.approx(best[0] / (1 - q[own]))
        assert float(found.margin[i]) == pytest.approx((best[0] - second[0]) / (1 - q[own]))
        power = [math.exp(0.7 * float(table[0, i, c]) + float(noise.prior[c])) for c in range(4)]
        assert float(found.single["density"][i]) == pytest.approx(power[own] / sum(power))
    assert (found.any, found.similar, found.unknown_reason) == (0.2, 0.1, "") and not found.unknown.any()


def test_of_two_classes_the_other_one_is_suggested_for_certain(stub):
    y = torch.arange(8) % 2
    stub(torch.randn(2, 8, 2, generator=torch.Generator().manual_seed(0)).double(), some_noise(2))
    found = class_label_quality(torch.zeros(8, 2), y)
    assert torch.equal(found.suggested, 1 - y)
    assert found.confidence.tolist() == pytest.approx([1] * 8) and found.margin.tolist() == pytest.approx([1] * 8)


def test_a_sample_of_no_class_cannot_have_a_right_label(stub):
    table = torch.zeros(2, 6, 3, dtype=torch.float64)
    table[:, torch.arange(6), torch.arange(6) % 3] = 9
    outside = torch.tensor([0.9, 0.4, 0.0, 0.0, 0.0, 0.0])
    stub(table, some_noise(3), outside)
    found = class_label_quality(torch.zeros(6, 2), torch.arange(6) % 3)
    assert float(found.score[0]) == pytest.approx(0.1) and (found.score[1:] > 0.9).all()
    assert found.is_off_topic.tolist() == [True] + [False] * 5


def test_evidence_that_says_nothing_gives_no_score(stub):
    stub(torch.zeros(2, 6, 3).double(), some_noise(3, gain=0.01))
    found = class_label_quality(torch.zeros(6, 2), torch.arange(6) % 3)
    assert found.score.isnan().all() and found.unknown.all() and found.unknown_reason == UNINFORMATIVE_REASON
    assert math.isnan(found.any) and math.isnan(found.similar) and found.single["density"].isnan().all()


def test_samples_without_another_of_their_class_have_no_score(stub):
    y, cluster = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 2, 3, 3, 4])  # class 1: two copies of one image
    each = Stored(torch.zeros(2, 6, 3).double(), cluster)
    assert alone_in_class(each, y).tolist() == [False] * 3 + [True] * 3
    stub(each.table, some_noise(3), cluster=cluster)
    found = class_label_quality(torch.zeros(6, 2), y)
    assert found.score.isnan().tolist() == found.unknown.tolist() == [False] * 3 + [True] * 3
    assert found.unknown_reason == ALONE_REASON and found.single["density"].isnan().tolist() == found.unknown.tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_wrong_labels_are_found_counted_and_named(seed):
    x, y, true = world([25] * 12, apart=1.3, seed=seed)
    bad, found = y != true, class_label_quality(x, y, seed)
    assert (found.score < 0.5)[bad].double().mean() > 0.9 and (found.score < 0.5)[~bad].double().mean() < 0.01
    assert float((1 - found.score).sum()) == pytest.approx(int(bad.sum()), rel=0.3)
    assert (found.suggested == true)[bad].double().mean() > 0.95 and (found.suggested != y).all()


@pytest.mark.parametrize(("classes", "each"), [(12, 25), (60, 5), (2, 40)])
def test_clean_labels_are_not_flagged(classes, each):
    x, y, _ = world([each] * classes, 32, wrong=0, apart=1.2)
    assert (class_label_quality(x, y).score < 0.5).double().mean() < 0.01


@pytest.mark.parametrize("sizes", [[20] * 20, [5] * 60, [2] * 100, [20] * 3, LONG_TAIL_SIZES])
def test_pure_noise_is_unknown(sizes):
    """Repro of F8: features without information gave every label the probability 1."""
    x, y, _ = world(sizes, 16, apart=0.0)
    found = class_label_quality(x, y)
    assert found.score.isnan().all() and found.unknown_reason == UNINFORMATIVE_REASON


def test_mostly_wrong_labels_are_never_certain():
    """Repro of F8: with 90 % wrong labels, and with 45 % of two classes, no label may be called right for certain."""
    for sizes, apart, wrong in (([30] * 20, 1.0, 0.9), ([100] * 2, 3.0, 0.45)):
        x, y, true = world(sizes, 32, wrong, apart)
        found = class_label_quality(x, y)
        known = ~found.score.isnan()
        if known.any():
            estimated = float((1 - found.score[known]).mean())
            assert estimated == pytest.approx(float((y != true)[known].double().mean()), abs=0.15)


def test_a_long_tail_is_calibrated():
    """Repro of F2: without class frequencies, right labels of large classes were flagged."""
    score, right = [], []
    for seed in range(2):
        x, y, true = world(LONG_TAIL_SIZES, 32, apart=0.5, seed=seed)
        found = class_label_quality(x, y)
        known = ~found.score.isnan()
        score.append(found.score[known])
        right.append((y == true)[known])
    score, right = torch.cat(score), torch.cat(right)
    assert float((1 - score).mean()) == pytest.approx(float((~right).double().mean()), abs=0.04)
    assert (~right)[score < 0.5].double().mean() > 0.6


@pytest.mark.parametrize("times", [2, 3])
def test_copies_do_not_confirm_a_wrong_label(times):
    """Repro of F3: copies of an image in other folds raised the score of its wrong label."""
    x, y, true = world([30] * 20, 256, 0.2, 0.25)
    g = torch.Generator().manual_seed(1)
    row = torch.arange(len(y)).repeat_interleave(times)
    copies = x[row] + 0.1 * torch.randn(len(row), 256, generator=g)
    bad = (y != true)[row]
    once, several = class_label_quality(x, y), class_label_quality(copies, y[row])
    assert float((1 - several.score).mean()) == pytest.approx(0.2, abs=0.06)
    assert float(several.score[bad].mean()) == pytest.approx(float(once.score[y != true].mean()), abs=0.15)


def test_relabelled_samples_have_a_suggestion_that_is_likelier_than_not():
    """Repro of F5: the confidence, which assumes that the label is wrong, decided alone."""
    x, y, true = world([40] * 20, 32, 0.2, 0.4)
    found = class_label_quality(x, y)
    chance = (1 - found.score) * found.confidence
    relabelled = torch.tensor(
        [
            suggested_decision("flagged" if s < 0.5 else "ok", s, c) == "relabel"
            for s, c in zip(found.score.tolist(), found.confidence.tolist())
        ]
    )
    assert relabelled.any() and (chance[relabelled] >= 0.5).all() and (chance > found.score)[relabelled].all()
    assert (found.suggested == true)[relabelled].double().mean() > 0.6


def test_samples_of_one_group_do_not_confirm_each_other():
    """Bursts of five similar images with one label, of which every fifth burst has a wrong label."""
    g = torch.Generator().manual_seed(0)
    x, y, true = world([10] * 12, 24, 0.2, 0.8)
    group = torch.arange(len(y)).repeat_interleave(5)
    burst = x[group] + 0.5 * torch.randn(len(group), 24, generator=g)
    bad = (y != true)[group]
    alone, grouped = (class_label_quality(burst, y[group], group=one).score for one in (None, group))
    assert grouped[bad].mean() < alone[bad].mean() - 0.1 and grouped[~bad].mean() > 0.8
    none = torch.full_like(group, -1)
    assert torch.equal(class_label_quality(burst, y[group], group=none).score, alone)


def test_a_class_of_one_group_is_unknown():
    x, y, _ = world([20] * 6, wrong=0, apart=1.5)
    group = torch.full_like(y, -1)
    group[y == 2] = 7
    found = class_label_quality(x, y, group=group)
    assert found.score.isnan().tolist() == (y == 2).tolist() and found.unknown_reason == ALONE_REASON


def test_errors_that_all_go_to_the_next_class_are_found():
    """Systematic errors: a fifth of every class has the label of the next one."""
    g = torch.Generator().manual_seed(0)
    true = torch.arange(12).repeat_interleave(40)
    x = 2 * torch.randn(12, 16, generator=g)[true] + torch.randn(480, 16, generator=g)
    wrong = torch.arange(480) % 5 == 0
    found = class_label_quality(x, torch.where(wrong, (true + 1) % 12, true))
    assert ((found.score < 0.5) == wrong).double().mean() > 0.95
    assert abs(float((1 - found.score).mean()) - 0.2) < 0.03


def test_single_samples_are_unknown_and_change_no_other_score_much():
    x, y, true = world([20] * 10, apart=1.3)
    alone = 1.4 * torch.randn(5, 24, generator=torch.Generator().manual_seed(5))
    found = class_label_quality(torch.cat([x, alone]), torch.cat([y, 10 + torch.arange(5)]))
    assert found.score.isnan().tolist() == [False] * 200 + [True] * 5 and found.unknown_reason == ALONE_REASON
    assert (found.score[:200] < 0.5)[y != true].double().mean() > 0.8


def cases():
    g = torch.Generator().manual_seed(0)
    y, x = torch.arange(60) % 3, torch.randn(60, 5, generator=g)
    return {
        "two samples": (x[:2], y[:2]),
        "three samples": (x[:3], torch.tensor([0, 1, 1])),
        "one class and single samples": (x[:40], torch.tensor([0] * 20 + list(range(1, 21)))),
        "identical": (x[:1].repeat(60, 1), y),
        "zeros": (torch.zeros(60, 5), y),
        "large numbers": (1e14 * x, y),
        "half precision": (x.half() + 3 * F.one_hot(y, 5).half(), y),
        "double precision": (x.double() + 3 * F.one_hot(y, 5), y),
        "more features than samples": (torch.randn(40, 200, generator=g), y[:40] % 2),
        "one feature": (x[:, :1], y),
        "fully apart": (0.001 * x + 10 * F.one_hot(y, 5), y),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_scores_are_probabilities_or_unknown(name):
    x, y = cases()[name]
    found = class_label_quality(x, y)
    assert torch.equal(found.score.isnan(), found.unknown) and bool(found.unknown_reason) == bool(found.unknown.any())
    for value in (found.score[~found.unknown], found.confidence, found.margin):
        assert ((value >= 0) & (value <= 1)).all()
    assert torch.isin(found.suggested, y).all() and not (found.score < 0.5).double().mean() > 0.2


def test_labels_may_be_any_integers_and_the_seed_decides():
    x, y, _ = world([16] * 5, 8, apart=0.8)
    before = torch.get_rng_state()
    plain, gaps, again, other = (class_label_quality(x, *one) for one in ((y,), ((7 * y - 3).int(),), (y, 0), (y, 1)))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(plain.score, gaps.score) and torch.equal(7 * plain.suggested - 3, gaps.suggested.long())
    assert torch.equal(plain.score, again.score) and not torch.equal(plain.score, other.score)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.randn(4, 2), torch.full((4,), 8), "class_label_quality: labels must have two .*got only class 8"),
        (torch.randn(4, 2), torch.zeros(4), "class_label_quality: .*one integer per row"),
        (torch.randn(4, 2), torch.arange(3), "class_label_quality: .*one integer per row"),
        (torch.randn(1, 2), torch.arange(1), "class_label_quality: z must be a table of two rows or more"),
        (torch.tensor([[1.0], [torch.nan]]), torch.arange(2), "class_label_quality: .*first: row 1"),
        (torch.tensor([[1.0], [1e20]]), torch.arange(2), r"below 1e\+15.*first: row 1"),
    ],
)
def test_bad_input_is_named(x, y, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        class_label_quality(x, y)


def test_a_class_of_one_sample_is_no_candidate_for_others():
    """A sample of its own class, in the middle of another one: no other sample is suggested to belong to it."""
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=(6, 8)), np.repeat(np.arange(6), 12)
    x = np.vstack([mean[y] + 0.7 * rng.normal(size=(72, 8)), mean[:1] + 0.1 * rng.normal(size=(1, 8))])
    y = np.append(y, 6)
    found = class_label_quality(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))
    assert not bool((found.suggested[:-1] == 6).any())
    assert found.unknown.nonzero()[:, 0].tolist() == [72]


def test_candidates_by_hand():
    q = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]])
    kept = among_candidates(q, torch.tensor([[0], [1]]), torch.tensor([False, True, False]))
    torch.testing.assert_close(kept, torch.tensor([[0.4, 0.0, 0.6], [0.2, 0.5, 0.3]]))


def scored(has, x):
    found, given = state_blocks(torch.tensor(x), torch.tensor(has), 0, None), torch.tensor(has)
    wrong = torch.cat([wrong for _, _, wrong in found.blocks])
    about = {"reason": found.reason, "missing": found.missing, "score": 1 - wrong.max(1).values}
    return SimpleNamespace(wrong=wrong, flagged=wrong > 0.5, suggested=given ^ (wrong > 0.5), **about)


def test_planted_errors_are_flagged_and_the_sets_are_repaired():
    true = label_matrix(400)
    noisy = noisy_matrix(true)
    found = scored(noisy, features_of(true))
    wrong, flagged = torch.tensor(noisy != true), found.flagged
    assert (flagged & wrong).sum() > 0.85 * flagged.sum() and (flagged & wrong).sum() > 0.85 * wrong.sum()
    assert (found.suggested != torch.tensor(true)).sum() < 0.3 * wrong.sum()
    worst = found.wrong.max(1).values
    torch.testing.assert_close(found.score, 1 - worst)


def test_no_probability_is_surer_than_the_samples_of_the_label_allow():
    true = label_matrix(300)
    found = scored(noisy_matrix(true), features_of(true, noise=0.05))
    least = np.minimum(true.sum(0), (~true).sum(0)).min()
    assert found.wrong.max() < 1 and found.wrong.max() <= 1 - 1 / (2 * least)


def test_a_label_of_few_samples_is_unknown():
    true = label_matrix(200)
    has = np.concatenate([true, np.arange(200)[:, None] < MIN_LABEL_SAMPLES - 1], 1)
    found = scored(has, features_of(true))
    assert found.reason[6] == FEW_REASON and bool(found.wrong[:, 6].isnan().all()) and not found.flagged[:, 6].any()
    assert bool(found.missing[6].isnan()) and not any(found.reason[:6])


def test_labels_that_nothing_explains_are_unknown():
    rng = np.random.default_rng(0)
    found = scored(rng.random((200, 2)) < 0.4, rng.normal(size=(200, 8)).astype(np.float32))
    assert found.reason == (UNEXPLAINED_REASON,) * 2 and bool(found.score.isnan().all())


def test_copies_count_once_for_a_label():
    true = label_matrix(200)
    x = np.concatenate([features_of(true), features_of(true)[:1].repeat(5, 0)])
    has = np.concatenate([true, true[:1].repeat(5, 0)])
    given = torch.tensor(has).float()
    with_it, without = cluster_counts(set_evidence(torch.tensor(x), given, setting=(True, 0.5)), given)
    most = torch.tensor(true).sum(0), torch.tensor(~true).sum(0)  # other samples may be near copies by chance
    assert bool((with_it <= most[0]).all()) and bool((without <= most[1]).all())


def test_bad_label_sets_are_named():
    x = np.zeros((4, 2), np.float32)
    with pytest.raises(
        LikewiseError, match="three samples or more .* needed, got 2 feature vectors and labels of shape"
    ):
        scored(np.ones((2, 2), bool), x[:2])
    x[0, 0] = np.nan
    with pytest.raises(LikewiseError, match="features must be finite"):
        scored(np.ones((4, 2), bool), x)


def test_the_quality_of_a_sample_is_that_of_its_most_suspect_label():
    """The confidence in a suggested set is the product over its changes, divided by P(wrong) of the most suspect one."""
    true = label_matrix(200)
    noisy = torch.tensor(noisy_matrix(true))
    found = label_set_quality(torch.tensor(features_of(true)), torch.arange(200), noisy)
    states = found.states
    assert states is not None and torch.equal(found.score, states.score.double())
    for row in range(200):
        changes = states.wrong[(states.row == row) & states.flagged].double().tolist()
        sure = math.prod(changes) / max(changes) if changes else 0.0
        assert float(found.confidence[row]) == pytest.approx(sure, rel=1e-6)
    some = found.of(torch.tensor([7, 3]))
    assert some.states is not None and torch.equal(some.states.score, states.score[[7, 3]])
    for place, row in enumerate((7, 3)):
        mine, of_all = some.states.row == place, states.row == row
        assert torch.equal(some.states.wrong[mine], states.wrong[of_all])
        assert torch.equal(some.states.label[mine], states.label[of_all])


def test_a_class_of_half_of_all_samples_and_classes_of_one_by_candidates(monkeypatch):
    """300 classes of four, one of 1,200 samples, and 40 of one: the single samples are unknown, and no class draws the others."""
    monkeypatch.setattr("likewise.labels.candidate_classes.MAX_DENSE_SCORES", 0)
    random = torch.Generator().manual_seed(0)
    true = torch.cat([torch.arange(300).repeat_interleave(4), torch.full((1200,), 300), 301 + torch.arange(40)])
    x = 1.5 * torch.randn(341, 24, generator=random)[true] + torch.randn(len(true), 24, generator=random)
    bad = (torch.rand(len(true), generator=random) < 0.1) & (true <= 300)
    y = true.where(~bad, (true + torch.randint(1, 301, (len(true),), generator=random)) % 301)
    found = class_label_quality(x, y)
    assert found.search is not None and found.search.classes == 341
    single = true > 300
    assert found.unknown is not None and bool(found.unknown[single].all()) and found.unknown_reason == ALONE_REASON
    known = ~found.unknown
    assert int((known & ~single).sum()) > 0.95 * int((~single).sum())  # some classes of four lost all samples but one
    flagged, wrong = found.score[known] < 0.5, (y != true)[known]
    assert int((flagged & wrong).sum()) > 0.8 * int(wrong.sum()) and int((flagged & wrong).sum()) > 0.8 * int(
        flagged.sum()
    )
    inner = known & (y == 300) & (true == 300)
    assert float((found.score[inner] < 0.5).double().mean()) < 0.02


def test_what_candidates_miss_is_measured(monkeypatch):
    monkeypatch.setattr("likewise.labels.candidate_classes.MAX_DENSE_SCORES", 0)
    random = torch.Generator().manual_seed(0)
    true = torch.arange(400).repeat_interleave(6)
    x = 1.3 * torch.randn(400, 24, generator=random)[true] + torch.randn(len(true), 24, generator=random)
    shift = torch.randint(1, 400, (len(true),), generator=random)
    y = true.where(torch.rand(len(true), generator=random) > 0.15, (true + shift) % 400)
    found = class_label_quality(x, y)
    search = found.search
    assert search is not None and (search.candidates, search.classes, search.checked) == (64, 400, 256)
    assert 0 <= search.hidden <= search.hidden_most <= 1 and search.hidden < 0.01 and search.recall == 1
    flagged = found.score < 0.5
    assert (flagged == (y != true)).float().mean() > 0.97
    assert (found.suggested[flagged & (y != true)] == true[flagged & (y != true)]).float().mean() > 0.8
    assert class_label_quality(x[:1200], y[:1200].clamp_max(199)).search is None  # all classes have scores
