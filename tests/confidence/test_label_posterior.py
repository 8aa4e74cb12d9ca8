"""LabelPosterior on Gaussian classes with known wrong labels: the shares it finds, what it repairs, what it leaves alone."""

import math

import numpy as np
import pytest
import torch

from likewise.confidence import LabelPosterior
from likewise.numerics import label_noise
from likewise.numerics import lda as discriminant
from likewise.numerics.label_noise import Noise
from likewise.types import Embedded, LikewiseError

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


def relabel(x, given, **settings):
    part = LabelPosterior(classes=int(given.max()) + 1, labels=given, **settings)
    return part, part.relabel(Embedded(torch.tensor(x), torch.tensor(given), torch.arange(len(x))))


def repaired(verdict, y, given):
    wrong = torch.tensor(given != y)
    return ((verdict.y == torch.tensor(y)) & (verdict.w > 0))[wrong].float().mean().item()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_uniform_noise_is_measured_and_repaired(share, seed):
    """Bounds with room: seen were shares off by up to 0.003, and 95 to 99.6 % repaired."""
    x, y = gaussians(seed)
    given = spoil(y, share, seed=seed + 5)
    _, verdict = relabel(x, given)
    found = verdict.facts["wrong labels, any"] + verdict.facts["wrong labels, similar"]
    assert abs(found - share) < 0.02 and repaired(verdict, y, given) > 0.9
    used = verdict.w > 0
    assert (verdict.y == torch.tensor(y))[used].float().mean() > 0.98
    assert verdict.threshold == 0.5 and ((verdict.suspicion >= 0.5).numpy() == (given != y)).mean() > 0.98


@pytest.mark.parametrize("apart", [8.0, 4.0])
@pytest.mark.parametrize("group", [1, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_clean_labels_are_left_alone(apart, group, seed):
    x, y = gaussians(seed, apart, group)
    _, verdict = relabel(x, y)
    assert ((verdict.y != torch.tensor(y)) | (verdict.w == 0)).float().mean() < 0.02
    assert verdict.facts["wrong labels, any"] + verdict.facts["wrong labels, similar"] < 0.02


@pytest.mark.parametrize("group", [2, 5, 10])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_noise_among_similar_classes_is_measured_and_repaired(group, share):
    """Classes of one kind mixed up; the share found is a little low, for such noise may pass as bluntness."""
    x, y = gaussians(group=group)
    given = spoil(y, share, group)
    _, verdict = relabel(x, given)
    used = verdict.w > 0
    assert share - 0.09 < verdict.facts["wrong labels, any"] + verdict.facts["wrong labels, similar"] < share + 0.02
    assert (verdict.y == torch.tensor(y))[used].float().mean() > 0.92


@pytest.mark.parametrize(("group", "share"), [(2, 0.1), (2, 0.3), (5, 0.1), (5, 0.3), (5, 0.5), (20, 0.5)])
@pytest.mark.parametrize("apart", [4.0, 8.0])
def test_never_for_the_worse(group, share, apart):
    x, y = gaussians(apart=apart, group=group % CLASSES or 1)
    given = spoil(y, share, group)
    _, verdict = relabel(x, given)
    used = verdict.w > 0
    assert (verdict.y == torch.tensor(y))[used].float().mean() >= (given == y).mean() - 0.01


def test_features_that_say_nothing_change_nothing():
    rng = np.random.default_rng(0)
    x, given = rng.normal(size=(400, DIM)).astype(np.float32), np.arange(400) % CLASSES
    _, verdict = relabel(x, given)
    assert ((verdict.y != torch.tensor(given)) | (verdict.w == 0)).float().mean() < 0.02


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


def test_no_class_is_lost():
    """One class is named wrongly throughout, and one has a single sample left."""
    x, y = gaussians()
    given = spoil(y, 0.4)
    given[y == 3] = np.arange(EACH) % 3  # nobody of class 3 is called so, but
    given[[0, 45]] = 3  # two that are not
    given[given == 7] = 8
    given[300] = 7
    for settings in ({}, {"least": 1.0}, {"repair": False}, {"rounds": 4}):
        _, verdict = relabel(x, given, **settings)
        left = torch.bincount(verdict.y[verdict.w > 0], minlength=CLASSES)
        assert (left >= torch.bincount(torch.tensor(given), minlength=CLASSES).clamp_max(2)).all(), settings


def test_a_class_that_stays_may_leave_another_without_samples(monkeypatch):
    """0 would live on by what 1 gives it, but 1 would then be gone and stays as it was given; so 0 must stay as well."""
    given = np.array([0, 0, 1, 1, 2, 2, 2, 2])
    believed = torch.tensor([2, 2, 0, 0, 2, 2, 2, 2])
    sure = torch.nn.functional.one_hot(believed, 3).float()
    monkeypatch.setattr(Noise, "posterior", lambda self, scores, y: sure)
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    _, verdict = relabel(x, given, folds=2)
    assert verdict.y.tolist() == given.tolist() and (verdict.w == 1).all()


def test_the_block_size_changes_nothing(monkeypatch):
    x, y = gaussians(apart=5.0)
    given = spoil(y, 0.3)
    _, whole = relabel(x, given)
    monkeypatch.setattr(discriminant, "SCORE_BLOCK_SIZE", 37 * CLASSES)
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
    part = LabelPosterior(CLASSES, given.numpy())
    noise = torch.randn(len(x), DIM, generator=torch.Generator().manual_seed(0))
    plain = part.relabel(Embedded(torch.tensor(x), given, torch.arange(len(x))))
    moved = part.relabel(Embedded(noise, given, torch.arange(len(x)), f=torch.tensor(x) * 64 + 32))
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
