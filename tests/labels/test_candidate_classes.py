"""Candidate classes: which are chosen, what drawn classes stand for, and that scores of candidates agree with those of all."""

import math

import pytest
import torch

from likewise.labels.candidate_classes import (
    DRAWN_CLASSES_COUNT,
    MAX_DENSE_SCORES,
    CandidateClasses,
    choose_candidates,
    class_of,
    given_column,
    repeats,
    scores_all_classes,
    shared_candidates,
    without_drawn,
)
from likewise.labels.label_evidence import SoftLabels as Soft
from likewise.labels.label_evidence import add_soft_terms, discriminate, joint_scores, soft_terms
from likewise.labels.label_noise import Noise, _Likelihood, fit_noise


def shop(classes=400, per_class=6, dim=24, wrong=0.15, seed=0, apart=1.2):
    """Features, given and true labels of many classes of few samples."""
    random = torch.Generator().manual_seed(seed)
    true = torch.arange(classes).repeat_interleave(per_class)
    x = apart * torch.randn(classes, dim, generator=random)[true] + torch.randn(len(true), dim, generator=random)
    bad = torch.rand(len(true), generator=random) < wrong
    shift = torch.randint(1, classes, (len(true),), generator=random)
    return x, torch.where(bad, (true + shift) % classes, true), true


def test_candidates_are_the_given_class_those_of_voting_neighbours_and_of_near_centres():
    y = torch.tensor([7, 3, 3, 5, 9])
    near = torch.tensor([[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3]])
    distance = torch.ones(5, 4)
    distance[0, 2] = math.inf  # row 3 has no vote for row 0
    found = choose_candidates(y, near, distance, torch.tensor([[7, 11]] * 5), classes=1000, count=6)
    kept = [[c for c in row if c >= 0] for row in found.label[:, :6].tolist()]
    assert kept[0] == [7, 3, 11, 9] and kept[1] == [3, 7, 5, 11, 9]
    slot, label = found.slot[0].tolist(), found.label[0].tolist()
    assert [label[s] if s < found.width else None for s in slot] == [
        3,
        3,
        None,
        9,
    ]  # the class without a vote: no column


def test_a_small_number_of_candidates_keeps_the_given_class_and_the_nearest():
    y = torch.arange(30)
    near = (y[:, None] + torch.arange(1, 21)) % 30
    found = choose_candidates(y, near, torch.ones(30, 20), (y[:, None] + 5) % 30, classes=30, count=4)
    assert found.label[0, :4].tolist() == [0, 1, 2, 5]
    assert found.slot[0, :5].tolist() == [1, 2, found.width, found.width, 3]


def test_drawn_classes_stand_for_all_that_are_no_candidates():
    x, y, _ = shop(classes=300)
    each, _ = discriminate(x, y, 300, rounds=1, candidates=32)
    columns = each.columns(torch.arange(50))
    number = columns.size.exp()
    assert number.sum(1).tolist() == pytest.approx([300] * 50, rel=1e-5)
    assert (columns.is_drawn.sum(1) <= DRAWN_CLASSES_COUNT).all() and not columns.is_drawn[:, 0].any()
    q = torch.rand(50, columns.label.shape[1])
    assert without_drawn(q, columns)[columns.is_drawn].sum() == 0
    assert torch.equal(class_of(given_column(y[:50], columns), columns)[:, 0], y[:50])


def test_scores_of_candidates_are_those_of_the_same_classes_among_all():
    x, y, _ = shop()
    few, _ = discriminate(x, y, 400, rounds=1, setting=(False, 0.5), candidates=64)
    all_, _ = discriminate(x, y, 400, rounds=1, setting=(False, 0.5), candidates=400)
    rows = torch.arange(0, len(y), 7)
    columns = few.columns(rows)
    expected = all_.scores(rows).gather(2, columns.label.expand(2, -1, -1))
    used = columns.size.isfinite() & ~columns.is_drawn
    # sums of 24 products of float32 up to some hundreds, in another order
    torch.testing.assert_close(few.scores(rows)[0][used], expected[0][used], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(few.scores(rows)[1][used], expected[1][used], rtol=1e-5, atol=1e-5)


def test_the_posterior_by_candidates_agrees_with_that_by_all_classes():
    x, y, true = shop(classes=500, dim=32)
    found = {}
    for candidates in (64, 500):
        each, noise = discriminate(x, y, 500, candidates=candidates)
        own = torch.zeros(len(y))
        for rows in each.blocks():
            columns = each.columns(rows)
            q = noise.posterior(each.scores(rows), y[rows], columns)
            assert q.sum(1).tolist() == pytest.approx([1] * len(rows), abs=1e-4)
            own[rows] = q.gather(1, given_column(y[rows], columns))[:, 0]
        found[candidates] = own, noise
    flagged = [own < 0.5 for own, _ in found.values()]
    assert (flagged[0] & flagged[1]).sum() / (flagged[0] | flagged[1]).sum() >= 0.97
    assert abs(found[64][1].any - found[500][1].any) < 0.005
    assert (flagged[0] == (y != true)).float().mean() > 0.97


@pytest.mark.parametrize(
    ("samples", "classes", "expected"),
    [
        (10**6, 256, True),
        (MAX_DENSE_SCORES // 1024, 1024, True),
        (MAX_DENSE_SCORES // 1024 + 1, 1024, False),
        (8_115, 1623, True),
        (32_460, 1623, False),  # Omniglot: 53 million scores
        (5_000, 2048, True),
        (5_000, 2049, False),
        (59_822, 11_318, False),
    ],
)
def test_all_classes_have_scores_up_to_a_number_of_classes_and_of_scores(samples, classes, expected):
    assert scores_all_classes(samples, classes) is expected


def test_candidates_are_used_only_where_scores_of_all_classes_are_too_many(monkeypatch):
    x, y, _ = shop(classes=300)
    assert discriminate(x, y, 300, rounds=1, setting=(False, 0.5))[0].candidates is None
    monkeypatch.setattr("likewise.labels.candidate_classes.MAX_DENSE_SCORES", len(y) * 300 - 1)
    assert discriminate(x, y, 300, rounds=1, setting=(False, 0.5))[0].candidates is not None


def test_the_noise_is_fitted_on_as_many_rows_by_candidates_as_by_all_classes():
    x, y, _ = shop(classes=300, per_class=31, dim=8)
    few, noise = discriminate(x, y, 300, rounds=1, setting=(False, 0.5), candidates=64)
    every = fit_noise(few.of_all_classes(), y)
    assert noise.fitted == every.fitted == 2**20 // 128 < len(y)
    assert fit_noise(few, y, most=2**17).fitted == fit_noise(few.of_all_classes(), y, most=2**17).fitted == 4096
    # 8,192 rows of which 15 % are wrong: fitted on the same rows, only the drawn classes differ
    assert noise.any + noise.similar == pytest.approx(every.any + every.similar, abs=0.01)


def test_the_gradient_with_candidates_is_that_of_its_values():
    random = torch.Generator().manual_seed(0)
    label = torch.stack([torch.randperm(40, generator=random)[:9] for _ in range(200)]).to(torch.int32)
    label[:, 4] = -1
    chosen = CandidateClasses(label, torch.zeros(200, 1, dtype=torch.int16), 40, 3)
    scores = torch.randn(2, 200, 9, generator=random)
    scores[0, :, 0] += 2
    count = torch.randint(1, 30, (40,), generator=random)
    fit = _Likelihood(scores, label[:, 0].long(), count, chosen.columns(torch.arange(200)))
    import numpy as np

    for similar, values in ((0.0, [0.1, -0.3, -1.0]), (None, [0.1, -0.3, -1.0, 0.4])):
        point = np.array(values)
        p, any_share, similar_share, prior = fit._parts(point, similar)
        table = None if similar == 0 else fit.similar_classes(p)
        near = None if table is None else table[fit.columns.label, fit.y[:, None]]
        found, gradient = fit._objective(point, similar, near)
        noise = Noise((1.0,), any_share, similar_share, table, prior, 0.0, 0)
        by_hand = (p * noise.label_probabilities(fit.y, fit.columns)).sum(1).log().mean()
        assert found == pytest.approx(-by_hand.item(), rel=1e-10)
        for i, slope in enumerate(gradient):
            step = 1e-5 * np.eye(len(point))[i]
            ends = [fit._objective(point + sign * step, similar, near)[0] for sign in (1, -1)]
            assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)  # rounding of float64: 1e-16 / 1e-5


def test_soft_labels_of_candidates_are_added_by_class():
    x, q = torch.randn(4, 3), torch.tensor([[0.5, 0.4995, 0.0005], [1.0, 0, 0], [0.25, 0.25, 0.5], [0.9, 0.1, 0]])
    label = torch.tensor([[0, 5, 2], [5, 0, 1], [1, 2, 5], [3, 4, 0]])
    count, total = torch.zeros(6), torch.zeros(6, 3)
    add_soft_terms(count, total, soft_terms(Soft(q, label), x), x)
    kept = torch.where(q >= 1e-3, q, 0)
    whole = torch.zeros(4, 6).scatter_add_(1, label, kept / kept.sum(1, keepdim=True))
    torch.testing.assert_close(count, whole.sum(0))
    torch.testing.assert_close(total, whole.T @ x)


def test_narrowed_candidates_keep_the_columns_of_neighbours():
    label = torch.tensor([[4, 8, 2, -1, 9], [1, 3, 5, 7, 0]], dtype=torch.int32)
    chosen = CandidateClasses(label, torch.tensor([[1, 2, 5], [4, 0, 3]], dtype=torch.int16), 10, 0)
    found = chosen.narrowed(torch.tensor([[0, 2, 4], [0, 3, 1]]))
    assert found.label.tolist() == [[4, 2, 9], [1, 7, 3]] and found.slot.tolist() == [[3, 1, 3], [3, 0, 1]]


def test_samples_of_a_group_share_their_candidates():
    x, y, _ = shop(classes=300)
    each, _ = discriminate(x, y, 300, rounds=1, candidates=24)
    rows, number = torch.tensor([3, 50, 900, 7]), torch.tensor([0, 1, 0, 0])
    scores, columns = joint_scores(each, rows, number, y)
    assert torch.equal(columns.label[0], columns.label[2]) and torch.equal(columns.label[0], columns.label[3])
    assert torch.equal(class_of(columns.own, columns)[:, 0], y[rows])
    for i, row in enumerate(rows.tolist()):  # the same score as with the candidates of the sample alone
        alone = each.columns(torch.tensor([row]))
        mine = {
            int(c): v
            for c, v, s in zip(alone.label[0], each.scores(torch.tensor([row]))[0, 0], alone.size[0])
            if s == 0
        }
        for c, v, s in zip(columns.label[i].tolist(), scores[0, i], columns.size[i]):
            if s == 0 and c in mine:
                assert float(v) == pytest.approx(float(mine[c]), rel=1e-4, abs=1e-3)


def test_repeats_by_hand():
    assert repeats(torch.tensor([[1, 2, 1, 3, 2]])).tolist() == [[False, False, True, False, True]]


def test_labels_of_noise_alone_get_no_preference():
    """No score depends on the given label: with features without information, the given class is anywhere among the others."""
    random = torch.Generator().manual_seed(3)
    x, y = torch.randn(1800, 8, generator=random), torch.randint(0, 300, (1800,), generator=random)
    each, _ = discriminate(x, y, 300, rounds=2, candidates=64)
    scores = each.of_all_classes()
    table = torch.cat([scores.scores(rows) for rows in scores.blocks()], 1)[0]
    place = (table < table.gather(1, y[:, None])).float().mean(1)
    assert abs(float(place.mean()) - 0.5) < 4 * (1 / 12 / 1800) ** 0.5 + 0.01


@pytest.mark.parametrize("classes", [300])
def test_shared_candidates_hold_every_given_class(classes):
    x, y, _ = shop(classes=classes)
    each, _ = discriminate(x, y, classes, rounds=1, candidates=24)
    rows = torch.arange(0, 60)
    found = shared_candidates(each.candidates, rows, rows % 4, y, each.votes.near[rows])
    columns = found.columns(torch.arange(60))
    assert torch.equal(class_of(columns.own, columns)[:, 0], y[rows])
