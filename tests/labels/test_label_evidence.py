"""Evidence about true classes: votes, folds and soft labels by hand; no leak; noise that is recovered from simulated features."""

import math

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix
from torch.nn import functional as F

from likewise.labels import label_evidence, label_noise
from likewise.labels.class_density import fit_class_density
from likewise.labels.label_evidence import (
    SHRINK_GRID,
    LabelEvidence,
    Trial,
    discriminate,
    draw_folds,
    fold_sums,
    principal_components,
    refit,
    set_evidence,
    with_related,
)
from likewise.labels.label_noise import Evidence, Noise, fit_noise, true_frequencies
from likewise.labels.neighbour_votes import ClassVotes, vote_distances

SETTING = (True, 0.5)


def gaussians(classes=10, each=60, dim=16, apart=5.0, pair=0.0, seed=0, sizes=None):
    """Features and classes; centres lie about `apart` standard deviations from one another, those of a pair `pair`."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(classes, dim, generator=g) * apart / math.sqrt(2 * dim)
    if pair:
        centre = centre[::2].repeat_interleave(2, 0) + torch.randn(classes, dim, generator=g) * pair / math.sqrt(
            2 * dim
        )
    sizes = torch.full((classes,), each) if sizes is None else sizes
    y = torch.arange(classes).repeat_interleave(sizes)
    return centre[y] + torch.randn(len(y), dim, generator=g), y


def spoil(y, share, classes=10, pair=False, seed=1):
    """This share gets another class, or the other class of its pair."""
    g = torch.Generator().manual_seed(seed)
    wrong = torch.randperm(len(y), generator=g)[: round(share * len(y))]
    given = y.clone()
    given[wrong] = y[wrong] ^ 1 if pair else (y[wrong] + torch.randint(1, classes, wrong.shape, generator=g)) % classes
    return given


def trial(x, y, classes, folds=4, setting=SETTING, seed=0, cluster=None):
    """The first round of `discriminate`, for one setting."""
    x = principal_components(x)
    unit = F.normalize(x, dim=1)
    near, distance = label_evidence.nearest_neighbours(unit, 60)[:2]
    cluster = torch.arange(len(y)) if cluster is None else cluster
    votes = ClassVotes(near, vote_distances(near, distance, cluster), y, classes)
    x = unit * x.shape[1] ** 0.5 if setting[0] else x
    sums = fold_sums(x, draw_folds(cluster, folds, seed), folds, y, classes, setting[1])
    return Trial(sums, votes, LabelEvidence(sums.fitted(), votes, cluster, setting), seed)


def believed(classes, uniform=0.2):
    """A noise model that believes the scores, whatever they are."""
    return Noise((1.0, 0.5), uniform, 0.0, None, torch.zeros(classes).double(), 9.0, 1000)


def total(noise):
    return noise.any + noise.similar


def test_no_sample_votes_for_itself():
    x, y = gaussians(each=10)
    each = trial(x, y, 10).evidence
    assert (each.votes.near != torch.arange(100)[:, None]).all()
    before = each.votes.scores(torch.tensor([7]))
    y[7] = 9
    torch.testing.assert_close(trial(x, y, 10).evidence.votes.scores(torch.tensor([7])), before)


def test_folds_are_equal_and_samples_of_a_cluster_share_one():
    fold = draw_folds(torch.arange(103), 10, seed=3)
    assert sorted(torch.bincount(fold).tolist()) == [10] * 7 + [11] * 3
    assert torch.equal(fold, draw_folds(torch.arange(103), 10, 3)) and not torch.equal(
        fold, draw_folds(torch.arange(103), 10, 4)
    )
    cluster = torch.randint(40, (200,), generator=torch.Generator().manual_seed(0)).unique(return_inverse=True)[1]
    fold = draw_folds(cluster, 5, 0)
    assert all(len(fold[cluster == c].unique()) == 1 for c in cluster.unique()) and len(fold.unique()) == 5


def test_groups_and_near_copies_share_a_fold_in_the_evidence():
    x, y = gaussians(each=20)
    x[1] = x[0] + 1e-3
    group = torch.full_like(y, -1)
    group[[0, 50, 120]] = 7
    each, _ = discriminate(x, y, 10, rounds=1, setting=SETTING, group=group)
    assert len(each.cluster[[0, 1, 50, 120]].unique()) == 1 == len(each.density.fold[[0, 1, 50, 120]].unique())
    known, _ = discriminate(x, y, 10, rounds=1, setting=SETTING, cluster=torch.arange(200))
    assert torch.equal(known.cluster, torch.arange(200))


def test_principal_components_keep_the_largest_variances():
    x = gaussians(each=20)[0].double() * torch.linspace(0.1, 3, 16) + 5
    plain = principal_components(x)
    torch.testing.assert_close(plain, (x - x.mean(0)) / (x - x.mean(0)).std())
    found = principal_components(x, 5)
    u, s, _ = np.linalg.svd((x - x.mean(0)).numpy(), full_matrices=False)
    wanted = torch.tensor(u[:, :5] * s[:5])
    wanted = wanted / wanted.std()
    assert found.shape == (200, 5)
    torch.testing.assert_close(found @ found.T, wanted @ wanted.T)  # up to the order and the signs of components


def test_every_fold_is_scored_by_the_other_folds():
    x, y = gaussians(each=20)
    one = trial(x.double(), y, 10, folds=3)
    each, q = one.evidence, F.one_hot(y, 10).double()
    rows, found = torch.arange(200), each.scores(torch.arange(200))
    assert isinstance(each, Evidence) and found.shape == (2, 200, 10) and each.classes == 10
    for k in range(3):
        out, mine = one.sums.fold != k, one.sums.fold == k
        z = one.sums.x[out]
        model = fit_class_density(q[out].sum(0), q[out].T @ z, z.T @ z, 0.5)
        torch.testing.assert_close(found[0, mine], model.scores(one.sums.x[mine]), rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(
            each.density.unseen_scores(rows[mine]), model.unseen_scores(one.sums.x[mine]), rtol=1e-7, atol=1e-7
        )
    torch.testing.assert_close(found[1], each.votes.scores(rows)[0])
    some = torch.tensor([150, 3, 77])
    torch.testing.assert_close(each.scores(some), found[:, some])


def test_soft_labels_by_hand():
    """The posterior of a sample in fold j that serves fold k: models without j and k, votes and class prior without k."""
    x, y = gaussians(classes=4, each=12, apart=3.0)
    one, noise, hard = trial(x.double(), y, 4, folds=3), believed(4), F.one_hot(y, 4).double()
    models = refit(one, noise).models
    for k in range(3):
        q = torch.zeros(48, 4).double()
        prior = true_frequencies(hard[one.sums.fold != k].sum(0), 0.2).log()
        votes = one.votes.without(one.sums.fold == k)
        for j in {0, 1, 2} - {k}:
            out, mine = (one.sums.fold != j) & (one.sums.fold != k), (one.sums.fold == j).nonzero()[:, 0]
            z = one.sums.x[out]
            model = fit_class_density(hard[out].sum(0), hard[out].T @ z, z.T @ z, 0.5)
            p = torch.softmax(model.scores(one.sums.x[mine]) + 0.5 * votes.scores(mine)[0] + prior, 1)
            q[mine] = p * (0.8 * hard[mine] + 0.2 / 3 * (1 - hard[mine]))
        q = q / q.sum(1, keepdim=True).clamp_min(1e-30)
        z = one.sums.x[one.sums.fold != k]
        wanted = fit_class_density(q.sum(0), q.T @ one.sums.x, z.T @ z, 0.5)
        torch.testing.assert_close(models[k].scores(one.sums.x), wanted.scores(one.sums.x), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("k", [0, 2])
def test_no_label_of_a_fold_affects_the_scores_of_the_fold_in_any_round(k):
    """Exact but for rounding; the labels of all folds enter only by the few shared values of the noise model."""
    x, y = gaussians(each=20, apart=3.0)
    y = spoil(y, 0.2)
    one, noise = trial(x, y, 10), fit_noise(trial(x, y, 10).evidence, y)
    mine = (one.sums.fold == k).nonzero()[:, 0]
    other = y.clone()
    other[mine] = (y[mine] + 1 + torch.arange(len(mine)) % 9) % 10
    changed = trial(x, other, 10)
    first, after = (a.evidence.density.scores(mine) for a in (one, changed))
    torch.testing.assert_close(first, after, rtol=0, atol=1e-4)
    first, after = refit(one, noise).scores(mine), refit(changed, noise).scores(mine)
    torch.testing.assert_close(first, after, rtol=0, atol=1e-4)
    rest = (one.sums.fold != k).nonzero()[:, 0]  # other folds do learn from them
    assert (refit(one, noise).scores(rest) - refit(changed, noise).scores(rest)).abs().max() > 0.1


def test_the_second_round_of_discriminate_is_that_of_refit():
    x, y = gaussians(each=40, apart=4.0)
    y = spoil(y, 0.4)
    once, first = discriminate(x, y, 10, rounds=1, folds=4, setting=SETTING)
    twice, noise = discriminate(x, y, 10, rounds=2, folds=4, setting=SETTING)
    rows, one = torch.arange(400), trial(x, y, 10, cluster=once.cluster)
    assert torch.equal(once.scores(rows), one.evidence.scores(rows))
    again = refit(one, first).scores(rows)
    torch.testing.assert_close(twice.density.scores(rows), again, rtol=0, atol=1e-4)
    torch.testing.assert_close(twice.votes.scores(rows), once.votes.scores(rows))
    assert noise.gain > first.gain


def percentile(scores, y):
    """Mean share of the other classes that the given label of a sample exceeds; ties count half."""
    own = scores.gather(1, y[:, None])
    higher = (scores < own).double().sum(1) + ((scores == own).double().sum(1) - 1) / 2
    return float((higher / (scores.shape[1] - 1)).mean())


def test_features_of_pure_noise_say_nothing_about_the_own_label():
    """Mean of 8 x 500 percentiles with standard deviation 0.32 each: a standard error of 0.005, and a small bias of folds."""
    found = []
    for seed in range(8):
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(500, 24, generator=g), torch.randint(10, (500,), generator=g)
        one = trial(x, y, 10, folds=10, seed=seed)
        rows = torch.arange(500)
        tables = (*one.evidence.scores(rows), refit(one, believed(10)).scores(rows)[0])
        found.append([percentile(table, y) for table in tables])
    assert np.mean(found, 0).tolist() == pytest.approx([0.5] * 3, abs=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_pure_noise_and_nine_wrong_labels_of_ten_are_unknown(seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(10, (500,), generator=g)
    assert not discriminate(torch.randn(500, 24, generator=g), y, 10, seed=seed)[1].informative
    x, y = gaussians(each=50, seed=seed)
    assert not discriminate(x, spoil(y, 0.9, seed=seed), 10, seed=seed)[1].informative


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("rounds", [1, 2])
def test_uniform_noise_is_recovered(share, rounds):
    """The share of 600 samples is exact; a mixture of well separated classes is estimated to about 1 / sqrt(600) of 0.5."""
    x, y = gaussians(apart=7.0)
    _, noise = discriminate(x, spoil(y, share), 10, rounds=rounds)
    assert total(noise) == pytest.approx(share, abs=0.03) and noise.informative


def test_noise_between_similar_classes_is_recovered():
    x, y = gaussians(each=120, apart=7.0, pair=5.0)
    given = spoil(y, 0.3, pair=True)
    each, noise = discriminate(x, given, 10)
    assert total(noise) == pytest.approx(0.3, abs=0.06) and noise.similar > 3 * noise.any
    q = noise.posterior(each.scores(torch.arange(1200)), given)
    assert (q.argmax(1) == y).double().mean() > 0.9


def test_copies_do_not_vouch_for_their_label():
    """Each sample three times with the same label, right or wrong. Copies that are not known as such hide wrong labels."""
    x, y = gaussians(each=40, apart=6.0)
    given = spoil(y, 0.3).repeat(3)
    x = x.repeat(3, 1) + 0.02 * torch.randn(1200, 16, generator=torch.Generator().manual_seed(5))
    each, noise = discriminate(x, given, 10)
    assert len(each.cluster.unique()) == 400 and total(noise) == pytest.approx(0.3, abs=0.05)
    _, fooled = discriminate(x, given, 10, cluster=torch.arange(1200))
    assert total(fooled) < 0.2


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_long_tail_of_small_classes(share):
    """Classes of 200 down to 2 samples."""
    sizes = (200 / torch.arange(1, 21) ** 1.5).clamp_min(2).long()
    x, y = gaussians(classes=20, apart=7.0, sizes=sizes)
    _, noise = discriminate(x, spoil(y, share, classes=20), 20)
    assert int(sizes.min()) == 2 and total(noise) == pytest.approx(share, abs=0.04)


def test_the_most_likely_setting_is_chosen():
    x, y = gaussians(each=30, apart=4.0)
    each, _ = discriminate(x, y, 10, rounds=1, folds=4)
    gains = {
        s: trial(x, y, 10, setting=s, cluster=each.cluster).gain
        for s in [(w, v) for w in (False, True) for v in SHRINK_GRID]
    }
    way = max((False, True), key=lambda w: gains[w, SHRINK_GRID[0]])
    assert each.setting == max(((way, v) for v in SHRINK_GRID), key=lambda s: gains[s])
    assert discriminate(x, y, 10, rounds=1, folds=4, setting=(False, 0.37))[0].setting == (False, 0.37)


def test_the_block_size_changes_nothing(monkeypatch):
    x, y = gaussians(each=30, apart=4.0)
    y = spoil(y, 0.3)
    whole, noise = discriminate(x, y, 10, folds=4)
    for module in (label_evidence, label_noise):
        monkeypatch.setattr(module, "SCORE_BLOCK_SIZE", 37 * 10)
    parts, again = discriminate(x, y, 10, folds=4)
    assert [len(rows) for rows in parts.blocks()] == [37] * 8 + [4]
    together = torch.cat([parts.scores(rows) for rows in parts.blocks()], 1)
    torch.testing.assert_close(together, whole.scores(torch.arange(300)), rtol=0, atol=1e-3)
    assert again.any == pytest.approx(noise.any, abs=1e-4)


def sets(count=120):
    """Features, and noisy label sets."""
    has = noisy_matrix(label_matrix(count))
    return torch.tensor(features_of(label_matrix(count))).double(), torch.tensor(has).double()


def test_no_score_uses_the_own_state():
    """A changed state of one sample changes no score of that label of that sample, but scores of others."""
    x, has = (t.float() for t in sets())
    rows, other = torch.arange(len(x)), has.clone()
    other[7, 1] = 1 - other[7, 1]
    cleaned, cleaned_other = has * 0.9, other * 0.9
    first, second = (
        with_related(set_evidence(x, one, setting=(True, 0.5)), soft).scores(rows)
        for one, soft in ((has, cleaned), (other, cleaned_other))
    )
    assert torch.equal(first[:, 7, 1], second[:, 7, 1])
    assert not torch.equal(first[:, :, 1], second[:, :, 1])


def test_the_setting_of_label_sets_with_the_highest_gain_is_used(monkeypatch):
    x, has = (t.float() for t in sets(60))
    seen = []

    def gain(each, has, seed):
        seen.append(each.setting)
        return float(each.setting == (True, 0.8))

    monkeypatch.setattr(label_evidence, "set_selection_gain", gain)
    assert set_evidence(x, has).setting == (False, 0.5) and len(seen) == 5  # a tie of the scalings: the first
    assert seen[:2] == [(False, 0.5), (True, 0.5)] and {shrink for _, shrink in seen} == set(SHRINK_GRID)
