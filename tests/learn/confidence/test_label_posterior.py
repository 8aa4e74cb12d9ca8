"""LabelPosterior on Gaussian classes with known wrong labels: the shares it finds, what it repairs, what it leaves alone."""

import math

import numpy as np
import pytest
import torch
from likewise.confidence import LabelPosterior, LabelSetPosterior
from likewise.types import Embedded, LikewiseError, Votes
from made_label_sets import features_of, items_of, label_matrix, noisy_matrix

from likewise.labels import label_evidence, label_noise
from likewise.labels.label_evidence import discriminate
from likewise.learn.confidence import label_posterior
from likewise.learn.confidence.label_posterior import MAX_CONFLICT_SHARE, MIN_CLASS_SAMPLES, keep_classes, nearest_sets
from likewise.learn.training.defaults import chosen_confidence

CLASSES, EACH, DIM = 20, 40, 16


def gaussians(seed=0, apart=8.0, group=1):
    """Classes whose centres lie about `apart` standard deviations from one another; those of a group share a part."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(CLASSES, DIM))
    if group > 1:
        centre += np.repeat(rng.normal(size=(CLASSES // group, DIM)), group, 0)
    y = np.repeat(np.arange(CLASSES), EACH)
    return (centre[y] * apart / math.sqrt(2 * DIM) + rng.normal(size=(len(y), DIM))).astype(np.float32), y


def spoil(y, share, group=CLASSES, seed=1):
    """This share gets another class of its group."""
    rng = np.random.default_rng(seed)
    given, wrong = y.copy(), rng.permutation(len(y))[: round(share * len(y))]
    first = y[wrong] // group * group
    given[wrong] = first + (y[wrong] - first + rng.integers(1, group, len(wrong))) % group
    return given


def embedded(x, given):
    return Embedded(torch.tensor(x), torch.tensor(given), torch.arange(len(x)))


def relabel(x, given, **settings):
    """The part and its first round. Five folds take half the time of ten and change no conclusion here."""
    settings = {"folds": 5} | settings
    part = LabelPosterior(classes=int(given.max()) + 1, labels=given, **settings)
    return part, part.relabel(embedded(x, given))


def noise_rate(verdict):
    return verdict.facts["wrong labels, any"] + verdict.facts["wrong labels, similar"]


def repaired(verdict, y, given):
    wrong = torch.tensor(given != y)
    return ((verdict.y == torch.tensor(y)) & (verdict.w > 0))[wrong].float().mean().item()


@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.3, 1), (0.5, 0), (0.5, 1)])
def test_uniform_noise_is_measured_and_repaired(share, seed):
    """At a share of 0.5, some 2 % of the used labels are wrong, with a standard error of 0.5 %."""
    x, y = gaussians(seed)
    given = spoil(y, share, seed=seed + 5)
    _, verdict = relabel(x, given)
    assert abs(noise_rate(verdict) - share) < 0.02 and repaired(verdict, y, given) > 0.9
    used = verdict.w > 0
    assert (verdict.y == torch.tensor(y))[used].float().mean() > (0.965 if share == 0.5 else 0.98)
    assert verdict.threshold == 0.5 and ((verdict.suspicion >= 0.5).numpy() == (given != y)).mean() > 0.98


@pytest.mark.parametrize(("apart", "group", "seed"), [(8.0, 1, 0), (8.0, 5, 1), (4.0, 1, 1), (4.0, 5, 0)])
def test_clean_labels_are_left_alone(apart, group, seed):
    x, y = gaussians(seed, apart, group)
    _, verdict = relabel(x, y)
    assert ((verdict.y != torch.tensor(y)) | (verdict.w == 0)).float().mean() < 0.02
    assert noise_rate(verdict) < 0.02


@pytest.mark.parametrize("group", [2, 5, 10])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_noise_among_similar_classes_is_measured_and_repaired(group, share):
    """Classes of one kind mixed up; the share found is a little low, for such noise may pass as bluntness."""
    x, y = gaussians(group=group)
    given = spoil(y, share, group)
    _, verdict = relabel(x, given)
    used = verdict.w > 0
    assert share - 0.09 < noise_rate(verdict) < share + 0.02
    assert (verdict.y == torch.tensor(y))[used].float().mean() > 0.9  # 0.91 for pairs and a share of 0.3, else 0.99


@pytest.mark.parametrize(("group", "share"), [(2, 0.1), (2, 0.3), (5, 0.1), (5, 0.3), (5, 0.5), (20, 0.5)])
@pytest.mark.parametrize("apart", [pytest.param(4.0, marks=pytest.mark.slow), 8.0])
def test_never_for_the_worse(group, share, apart):
    x, y = gaussians(apart=apart, group=group % CLASSES or 1)
    given = spoil(y, share, group)
    _, verdict = relabel(x, given)
    used = verdict.w > 0
    assert (verdict.y == torch.tensor(y))[used].float().mean() >= (given == y).mean() - 0.01


def test_features_that_say_nothing_change_nothing():
    """The noise rate is unknown then."""
    rng = np.random.default_rng(0)
    x, given = rng.normal(size=(400, DIM)).astype(np.float32), np.arange(400) % CLASSES
    part, verdict = relabel(x, given)
    assert torch.equal(verdict.y, torch.tensor(given)) and (verdict.w == 1).all() and (verdict.suspicion == 0).all()
    assert math.isnan(noise_rate(verdict)) and not part.rounds_seen.any() and (part.setting == -1).all()


def test_without_repair_labels_are_only_left_out():
    x, y = gaussians()
    given = spoil(y, 0.3)
    _, both = relabel(x, given)
    _, verdict = relabel(x, given, repair=False)
    used = verdict.w > 0
    assert (verdict.y == torch.tensor(given))[used].all()
    assert torch.equal(used, (both.w > 0) & (both.y == torch.tensor(given)))
    assert (~used).float().mean() == pytest.approx(0.3, abs=0.02)


def test_the_surer_the_fewer():
    x, y = gaussians(apart=4.0)
    given = spoil(y, 0.3)
    used = [relabel(x, given, least=least)[1].w.mean().item() for least in (0.0, 0.5, 0.9)]
    assert used[0] == 1 > used[1] > used[2]


def test_classes_keep_their_samples():
    """One class has two samples that belong elsewhere, and one has a single sample left."""
    x, y = gaussians()
    given = spoil(y, 0.4)
    given[y == 3] = np.arange(EACH) % 3
    given[given == 3] = 4
    given[[0, 45]] = 3
    given[given == 7] = 8
    given[300] = 7
    for settings in ({}, {"least": 1.0}, {"repair": False}, {"rounds": 1}):
        _, verdict = relabel(x, given, **settings)
        left = torch.bincount(verdict.y[verdict.w > 0], minlength=CLASSES)
        size = torch.bincount(torch.tensor(given), minlength=CLASSES)
        assert size[3] == 2 and size[7] == 1 and (left >= size.clamp_max(MIN_CLASS_SAMPLES)).all(), settings


def test_a_class_that_gets_its_samples_back_may_leave_another_with_too_few():
    """Class 0 has what class 1 gives it; class 1 would be empty and gets its samples back; so does class 0 then."""
    y = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    top, used = keep_classes(torch.tensor([2, 2, 0, 0, 2, 2, 2, 2]), torch.ones(8) > 0, torch.zeros(8), y, 3)
    assert torch.equal(top, y) and used.all()


def test_the_samples_most_probably_right_come_back_first():
    y, own = torch.tensor([0] * 6 + [1] * 6), torch.tensor([0.1, 0.4, 0.2, 0.05, 0.3, 0.0] + [0.9] * 6)
    top, used = keep_classes(torch.ones(12, dtype=torch.int64), torch.arange(12) > 5, own, y, 2)
    assert used.tolist() == [True, True, True, False, True, False] + [True] * 6
    assert top.tolist() == [0, 0, 0, 1, 0, 1] + [1] * 6  # what is not used keeps the suggested label


def test_the_block_size_changes_nothing(monkeypatch):
    x, y = gaussians(apart=5.0)
    given = spoil(y, 0.3)
    _, whole = relabel(x, given)
    for module in (label_evidence, label_noise):
        monkeypatch.setattr(module, "SCORE_BLOCK_SIZE", 37 * CLASSES)
    _, parts = relabel(x, given)
    assert torch.equal(whole.y, parts.y) and torch.equal(whole.w, parts.w)
    assert torch.allclose(whole.suspicion, parts.suspicion, atol=1e-4)
    assert whole.facts == pytest.approx(parts.facts, abs=1e-4)


def test_many_classes_go_without_the_table_of_similar_ones(monkeypatch):
    x, y = gaussians()
    given = spoil(y, 0.3)
    monkeypatch.setattr(label_noise, "MAX_SIMILARITY_CLASSES", CLASSES - 1)
    _, verdict = relabel(x, given)
    assert verdict.facts["wrong labels, similar"] == 0 and repaired(verdict, y, given) > 0.95


def test_features_are_preferred_to_embeddings_and_their_scale_and_place_do_not_matter():
    x, y = gaussians(apart=5.0)
    given = torch.tensor(spoil(y, 0.3))
    noise = torch.randn(len(x), DIM, generator=torch.Generator().manual_seed(0))
    plain = LabelPosterior(CLASSES, given.numpy()).relabel(embedded(x, given.numpy()))
    moved = Embedded(noise, given, torch.arange(len(x)), f=torch.tensor(x) * 64 + 32)
    moved = LabelPosterior(CLASSES, given.numpy()).relabel(moved)
    assert torch.equal(plain.y, moved.y) and torch.equal(plain.w, moved.w)


def test_the_seed_decides_the_cut_and_nothing_else_is_drawn():
    x, y = gaussians(apart=4.0)
    given = spoil(y, 0.3)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second, third = (relabel(x, given, seed=seed)[1] for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.suspicion, second.suspicion) and not torch.equal(first.suspicion, third.suspicion)


def test_weights_wait_for_the_first_verdict_and_are_in_the_state():
    x, y = gaussians(apart=4.0)
    given = spoil(y, 0.3)
    part = LabelPosterior(CLASSES, given)
    rows = torch.arange(0, len(x), 3)
    labels, z = torch.tensor(given)[rows], torch.zeros(len(rows), 4)
    assert (part(z, labels, rows, None).w == 1).all()
    verdict = part.relabel(Embedded(torch.tensor(x), torch.tensor(given), torch.arange(len(x))))
    trust = part(z, labels, rows, None)
    assert torch.equal(trust.w, verdict.w[rows]) and 0 < trust.w.mean() < 1 and trust.partner is None
    again = LabelPosterior(CLASSES, given)
    again.load_state_dict(part.state_dict())
    assert torch.equal(again(z, labels, rows, None).w, trust.w)
    x += np.random.default_rng(9).normal(size=x.shape).astype(np.float32) / 2
    first, second = (one.relabel(embedded(x, given)) for one in (part, again))  # the next round is the same too
    assert torch.equal(first.y, second.y) and torch.equal(first.suspicion, second.suspicion)
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in part.state_dict().items())


def test_the_verdict_by_hand():
    """Posteriors of `discriminate`; the label is the likeliest, the sample is used from 0.5 on, if no new class is likelier."""
    x, y = gaussians(apart=3.0)
    given = spoil(y, 0.3)
    part, verdict = relabel(x, given, shrink=0.5, folds=5, seed=4)
    labels = torch.tensor(given)
    each, noise = discriminate(torch.tensor(x), labels, CLASSES, folds=5, setting=(True, 0.5), seed=4)
    scores, rows = each.scores(torch.arange(len(y))), torch.arange(len(y))
    sure, top = noise.posterior(scores, labels).max(1)
    own = noise.posterior(scores, labels)[rows, labels]
    new_class = each.density.unseen_scores(rows) >= scores[0, rows, top]
    used = (sure >= 0.5) & ((top == labels) | ~new_class) & ~part.outside
    assert torch.allclose(verdict.suspicion, 1 - own, atol=1e-5) and verdict.facts["wrong labels, any"] == noise.any
    assert torch.equal(verdict.w > 0, used) and torch.equal(verdict.y, top) and 0.5 < used.double().mean() < 0.99


def two_rounds(x, second, given, **settings):
    """Rounds with two tables of features; and what a part that has seen the second one only makes of it."""
    settings = {"shrink": 0.5, "folds": 5} | settings
    part, first = relabel(x, given, **settings)
    before = {name: value.clone() for name, value in part.state_dict().items()}
    alone = LabelPosterior(CLASSES, given, **settings)
    alone.cluster.copy_(part.cluster)
    return part, before, first, part.relabel(embedded(second, given)), alone.relabel(embedded(second, given))


def test_the_evidence_of_several_rounds_is_a_mean():
    x, y = gaussians(apart=4.0)
    other = x + np.random.default_rng(7).normal(size=x.shape).astype(np.float32)
    part, before, first, both, alone = two_rounds(x, other, spoil(y, 0.3))
    twice = part.rounds_seen == 2
    mean = (first.suspicion + alone.suspicion) / 2
    assert twice.double().mean() > 0.6 and torch.allclose(both.suspicion[twice], mean[twice], atol=1e-5)
    assert (part.rounds_seen >= 1).all() and torch.equal(both.suspicion[~twice], first.suspicion[~twice])
    sums = part.evidence.sum(1)[twice]
    assert (sums <= 2 + 1e-5).all() and sums.mean() > 1.9  # eight of twenty labels are stored
    assert torch.equal(part.setting, before["setting"]) and torch.equal(part.cluster, before["cluster"])


def test_a_repaired_label_that_training_confirms_does_not_count():
    """Half of the repaired samples move to the class they were trained as, the others back to the class they were given."""
    x, y = gaussians()
    given = spoil(y, 0.3)
    labels = torch.tensor(given)
    _, first = relabel(x, given, shrink=0.5)
    repaired = ((first.y != labels) & (first.w > 0)).numpy()
    centre = np.stack([x[y == c].mean(0) for c in range(CLASSES)])
    back = repaired & (np.arange(len(y)) % 2 == 0)
    second = np.where(repaired[:, None], centre[np.where(back, given, first.y.numpy())] + (x - centre[y]), x)
    part, before, _, both, _ = two_rounds(x, second.astype(np.float32), given)
    confirmed, back = torch.tensor(repaired & ~back), torch.tensor(back)
    assert confirmed.sum() > 50 < back.sum()
    assert (part.rounds_seen[confirmed] == 1).double().mean() > 0.97
    still = confirmed & (part.rounds_seen == 1)
    for name in ("candidate", "evidence", "own"):
        assert torch.equal(part.state_dict()[name][still], before[name][still])
    assert (part.rounds_seen[back] == 2).double().mean() > 0.97 and (
        part.rounds_seen[~confirmed] == 2
    ).double().mean() > 0.95
    assert (both.suspicion[back] < first.suspicion[back] - 0.3).double().mean() > 0.95


def test_posteriors_are_added_to_the_stored_candidates_by_hand():
    part = LabelPosterior(10, np.array([0, 1, 2]))
    rows, y = torch.arange(3), torch.tensor([0, 1, 2])
    part._count(rows, torch.tensor([[0.3, 0, 0, 0, 0.6, 0, 0, 0.1, 0, 0]] * 3), None, y)
    part.label.copy_(torch.tensor([0, 4, 4]))  # 1 and 2 are trained as 4, but 2 is dropped
    part.w.copy_(torch.tensor([1.0, 1.0, 0.0]))
    part._count(rows, torch.tensor([[0.1, 0, 0, 0, 0.5, 0, 0, 0, 0, 0.4]] * 3), None, y)
    stored = [{int(c): float(v) for c, v in zip(part.candidate[i], part.evidence[i]) if v > 0} for i in range(3)]
    added = {4: pytest.approx(1.1), 0: pytest.approx(0.4), 9: pytest.approx(0.4), 7: pytest.approx(0.1)}
    assert stored == [added, {4: pytest.approx(0.6), 0: pytest.approx(0.3), 7: pytest.approx(0.1)}, added]
    assert part.own.tolist() == pytest.approx([0.4, 0, 0]) and part.rounds_seen.tolist() == [2, 1, 2]


def with_copies(count, apart=8.0):
    """Samples, of which the last are exact copies of the first with another label; true and given labels; copy numbers."""
    x, y = gaussians(apart=apart)
    source = np.arange(count) * 53 % len(x)  # of all classes
    copy = np.r_[np.arange(len(x)), source]
    x, y, given = x[copy], y[copy], y[copy].copy()
    given[-count:] = (given[-count:] + np.random.default_rng(2).integers(1, CLASSES, count)) % CLASSES
    return x, y, given, copy, np.isin(copy, source)


def test_exact_copies_with_different_labels_share_one_posterior():
    x, y, given, copy, twice = with_copies(15)
    labels, rows = torch.tensor(given), torch.tensor(np.flatnonzero(twice))
    part, verdict = relabel(x, given, shrink=0.5, copies=lambda: copy)
    each, noise = discriminate(torch.tensor(x), labels, CLASSES, folds=5, setting=(True, 0.5))
    p, said = (
        noise.probabilities(each.scores(rows)).double().log(),
        noise.label_probabilities(labels[rows]).double().log(),
    )
    for number in np.unique(copy[twice]):
        mine = torch.tensor(copy[twice] == number)
        q = (p[mine].mean(0) + said[mine].sum(0)).softmax(0)  # one image and two labels
        i, j = rows[mine].tolist()
        assert verdict.y[i] == verdict.y[j] == int(q.argmax()) == y[i]
        for row in (i, j):
            assert float(1 - verdict.suspicion[row]) == pytest.approx(float(q[given[row]]), abs=1e-4)
    top = verdict.y[rows]
    fits = each.scores(rows)[0].gather(1, top[:, None])[:, 0] > each.density.unseen_scores(rows)
    assert torch.equal(verdict.w[rows] > 0, fits | (top == labels[rows])) and verdict.w[rows].mean() > 0.9
    part.relabel(embedded(x, given))
    assert (part.rounds_seen[rows] == 1).all()  # each round replaces the joint posterior


def test_conflicting_copies_are_dropped_without_evidence():
    _, _, given, copy, twice = with_copies(15)
    x = np.random.default_rng(0).normal(size=(len(copy), DIM)).astype(np.float32)[copy]
    _, verdict = relabel(x, given, copies=lambda: copy)
    assert math.isnan(noise_rate(verdict)) and torch.equal(verdict.w == 0, torch.tensor(twice))


def test_many_conflicts_are_taken_for_several_labels_per_image():
    count = math.ceil(MAX_CONFLICT_SHARE * CLASSES * EACH / (2 - MAX_CONFLICT_SHARE))  # 2 count of 800 + count samples
    for copies, alone in ((count - 1, False), (count + 1, True)):
        _, _, given, copy, twice = with_copies(copies)
        part = LabelPosterior(CLASSES, given, copies=lambda copy=copy: copy)
        found = part._conflicts(torch.tensor(given)).numpy()
        assert (twice.mean() > MAX_CONFLICT_SHARE) == alone
        assert np.array_equal(found, np.full(len(copy), -1) if alone else np.where(twice, copy, -1))
    _, y, given, copy, _ = with_copies(15)
    part = LabelPosterior(CLASSES, y, copies=lambda: copy)
    assert (part._conflicts(torch.tensor(y)) == -1).all()  # copies with the same label do not conflict


def test_off_topic_samples_are_dropped():
    x, y = gaussians()
    rng = np.random.default_rng(3)
    foreign = np.arange(len(x) + 12) >= len(x)
    x = np.concatenate([x + 4, 3 * rng.normal(size=(12, DIM)).astype(np.float32) - 12])
    y = np.r_[y, np.arange(12)]
    part, verdict = relabel(x, y)
    assert torch.equal(part.outside, torch.tensor(foreign)) and (verdict.w[foreign] == 0).all()
    assert (verdict.w[~foreign] == 0).double().mean() < 0.02
    again = part.relabel(embedded(np.concatenate([x[:-12], x[:12]]), y))  # found by the first features only
    assert (again.w[foreign] == 0).all()


def test_samples_of_one_group_are_in_one_fold():
    x, y = gaussians()
    group = np.where(np.arange(len(y)) % 40 < 5, y, -1)  # five samples of every class
    part, _ = relabel(x, y, group=group)
    assert all(len(part.cluster[torch.tensor(group == c)].unique()) == 1 for c in range(CLASSES))
    assert len(part.cluster.unique()) == len(y) - 4 * CLASSES


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_broken_features_are_refused(bad):
    x, y = gaussians()
    x[5, 3] = bad
    with pytest.raises(
        LikewiseError, match="LabelPosterior: the features must be finite, got NaN or infinite values; lower lr"
    ):
        relabel(x, y)


@pytest.mark.parametrize(
    "change",
    [{"classes": 1}, {"least": 1.5}, {"rounds": 0}, {"folds": 1}, {"shrink": 0.0}, {"shrink": 1.1}],
)
def test_settings_out_of_range_are_named(change):
    (name, value), *_ = change.items()
    with pytest.raises(LikewiseError, match=rf"LabelPosterior: .*got .*{name}={value}"):
        LabelPosterior(**{"classes": 3, "labels": np.arange(3)} | change)


def test_with_votes_the_label_is_the_consensus_and_the_weight_its_posterior():
    rng = np.random.default_rng(0)
    true = np.arange(120) % 3
    given = np.where(np.arange(120) < 12, (true + 1) % 3, true)
    x = torch.tensor(0.5 * rng.normal(size=(3, 8))[true] + rng.normal(size=(120, 8)), dtype=torch.float32)
    row, worker = np.arange(120).repeat(3), np.tile(np.arange(3), 120)
    label = np.where(rng.random(360) < 0.8, true[row], (true[row] + 1) % 3)
    votes = Votes(row, worker, label, ("a", "b", "c"))
    confidence = LabelPosterior(3, given, votes=votes)
    y = torch.tensor(given)
    found = confidence.relabel(Embedded(x, y, torch.arange(120), f=x))
    assert float((found.y != torch.tensor(true)).double().mean()) < 0.1
    assert float(found.w.min()) >= 0 and 0.5 < float(found.w.mean()) <= 1 and len(found.w.unique()) > 10


def test_votes_change_the_voted_samples_only():
    rng = np.random.default_rng(1)
    true = np.arange(120) % 3
    given = np.where(np.arange(120) < 12, (true + 1) % 3, true)
    x = torch.tensor(2 * rng.normal(size=(3, 8))[true] + rng.normal(size=(120, 8)), dtype=torch.float32)
    votes = Votes(np.repeat([0, 50], 3), np.tile(np.arange(3), 2), np.repeat([true[0], true[50]], 3), ("a", "b", "c"))
    y = torch.tensor(given)
    one, other = (
        LabelPosterior(3, given, votes=chosen).relabel(Embedded(x, y, torch.arange(120), f=x))
        for chosen in (votes, None)
    )
    rest = torch.ones(120, dtype=torch.bool).index_fill_(0, torch.tensor([0, 50]), False)
    assert torch.equal(one.y[rest], other.y[rest]) and torch.equal(one.w[rest], other.w[rest])
    assert torch.equal(one.suspicion[rest], other.suspicion[rest])
    assert int(one.y[0]) == true[0] and float(one.w[0]) > 0.5


def test_nearest_sets_by_hand():
    """Wanted sets: one exists; one does not, and {0, 1} is nearer than the own set; one is no nearer to any other set."""
    sets = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]]).bool()
    wanted = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 0]]).bool()
    assert nearest_sets(wanted, sets, torch.tensor([0, 2, 0, 0])).tolist() == [1, 1, 0, 0]


def test_sure_errors_are_repaired_and_the_rest_stays():
    true = label_matrix(400)
    noisy, x = noisy_matrix(true), features_of(true)
    items = items_of(noisy)
    assert items.label_sets is not None
    part = LabelSetPosterior(items.y, items.label_sets, folds=5)
    given = torch.tensor(items.y)
    found = part.relabel(Embedded(torch.tensor(x), given, torch.arange(400)))
    after, before = (part.sets[y].numpy() for y in (found.y, given))
    assert (before != true).sum() > 3 * (after != true).sum()
    changed = after != before
    assert changed.sum() > 0 and (after == true)[changed].mean() > 0.9
    assert bool((found.w == 1).all()) and 0.05 < found.facts["missing labels"] < 0.2
    assert part(torch.tensor(x[:3]), given[:3], torch.arange(3), None).w.tolist() == [1, 1, 1]
    again = part.relabel(Embedded(torch.tensor(x), given, torch.arange(400)))
    assert (again.y == found.y).float().mean() > 0.98


def test_many_labels_are_lists_and_too_many_are_refused(monkeypatch):
    true = label_matrix(300)
    items = items_of(noisy_matrix(true))
    assert items.label_sets is not None
    e = Embedded(torch.tensor(features_of(true)), torch.tensor(items.y), torch.arange(300))
    few = LabelSetPosterior(items.y, items.label_sets, folds=5)
    monkeypatch.setattr(label_posterior, "MAX_DENSE_CLASSES", 1)
    many = LabelSetPosterior(items.y, items.label_sets, folds=5)
    found = [part.relabel(e).y for part in (few, many)]
    assert (found[0] == found[1]).float().mean() > 0.98  # two fits that stop near the maximum
    torch.testing.assert_close(few.total, many.total, rtol=1e-2, atol=1e-2)
    monkeypatch.setattr(label_posterior, "MAX_STORED_STATES", few.total.numel() - 1)
    with pytest.raises(LikewiseError, match=rf"at most [\d,]+ states .* got 300 x {few.total.shape[1]}; train without"):
        LabelSetPosterior(items.y, items.label_sets)


def test_robust_chooses_it_for_several_labels():
    items = items_of(label_matrix(20))
    default = "LabelPosterior()"
    from likewise.core.settings.spec import canonical

    assert chosen_confidence(canonical(default), items).startswith("LabelSetPosterior(")
    with pytest.raises(LikewiseError, match="needs one label per sample, and 'clothes' has several; use --confidence"):
        chosen_confidence(canonical("LabelPosterior(least=0.9)"), items)
    assert chosen_confidence(canonical("SuperLoss()"), items) == canonical("SuperLoss()")


def test_a_robust_training(tmp_path):
    """A training on features with several labels runs, relabels before its first step, and logs the shares."""
    import likewise

    run = likewise.train(
        "made_label_sets.clothes()", root=str(tmp_path), recipe="robust", loss="MultiSimilarity()", epochs=2, dim=8,
        allow_imports=True, out=str(tmp_path / "run"), device="cpu", quiet=True, batch_size=16, protocol="SeenClasses()",
    )  # fmt: skip
    assert "LabelSetPosterior" in (run.path / "config.json").read_text()
    assert "missing labels" in (run.path / "log.jsonl").read_text()


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="least in"):
        LabelSetPosterior(np.zeros(3, int), [(0,)], least=0.2)
    part = LabelSetPosterior(np.zeros(3, int), [(0,)])
    with pytest.raises(LikewiseError, match="features must be finite"):
        part.relabel(Embedded(torch.full((3, 2), torch.nan), torch.zeros(3, dtype=torch.long), torch.arange(3)))


def many_classes(classes=400, per_class=6, dim=24, seed=0):
    """Features, given and true labels of more classes than have scores of their own for every sample."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(classes), per_class)
    x = (1.3 * rng.normal(size=(classes, dim)))[true] + rng.normal(size=(len(true), dim))
    bad = rng.random(len(true)) < 0.2
    return x.astype(np.float32), np.where(bad, (true + rng.integers(1, classes, len(true))) % classes, true), true


def test_candidates_in_place_of_all_classes_give_the_same_labels(monkeypatch):
    x, given, true = many_classes()
    every = LabelPosterior(400, given).relabel(embedded(x, given))
    monkeypatch.setattr("likewise.labels.candidate_classes.MAX_DENSE_SCORES", 0)
    few = LabelPosterior(400, given).relabel(embedded(x, given))
    assert (few.y == every.y).float().mean() > 0.99 and (few.w == every.w).float().mean() > 0.98
    used = few.w > 0
    assert (few.y.numpy() == true)[used.numpy()].mean() > 0.97
    assert few.facts["wrong labels, any"] == pytest.approx(every.facts["wrong labels, any"], abs=0.01)


def test_copies_with_different_labels_share_one_posterior_of_candidates(monkeypatch):
    monkeypatch.setattr("likewise.labels.candidate_classes.MAX_DENSE_SCORES", 0)
    x, given, true = many_classes()
    source = np.arange(0, 1200, 97)
    copy = np.r_[np.arange(len(x)), source]
    x, given, true = x[copy], given[copy].copy(), true[copy]
    given[-len(source) :] = (true[-len(source) :] + 7) % 400
    part = LabelPosterior(400, given, copies=lambda: copy)
    found = part.relabel(embedded(x, given))
    assert torch.equal(found.y[source], found.y[-len(source) :])
    assert (found.y[source].numpy() == true[source]).mean() > 0.8
