"""Candidates of the true class: by hand, draws of true labels, and the update from decisions."""

import itertools
import math

import numpy as np
import pytest
import torch

from likewise.labels.posterior_update import (
    Candidates,
    draw_worlds,
    keep_candidates,
    shift_odds,
    shifted,
    update_posterior,
)


def some():
    return Candidates(
        torch.tensor([[0, 1, 2], [1, 0, 2], [2, 1, 0]]),
        torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.0, 0.25, 0.75]], dtype=torch.float64),
    )


def test_candidates_by_hand():
    q = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.7, 0.1, 0.15, 0.05]], dtype=torch.float64)
    found = keep_candidates(q, torch.tensor([2, 0]), 3)
    assert found.label[0].tolist()[:2] == [2, 1] and found.label[1].tolist() == [0, 2, 1]
    want = [[0.2 / 0.9, 0.6 / 0.9, 0.1 / 0.9], [0.7 / 0.95, 0.15 / 0.95, 0.1 / 0.95]]
    torch.testing.assert_close(found.probability, torch.tensor(want, dtype=torch.float64))
    assert found.suggested.tolist() == [1, 2]
    torch.testing.assert_close(found.wrong, 1 - found.probability[:, 0])


def test_other_odds_keep_the_ratios_of_the_other_classes():
    found = some().with_wrong(torch.tensor([0.2, 0.4, 1.0], dtype=torch.float64))
    want = [[0.8, 0.12, 0.08], [0.6, 0.2, 0.2], [0.0, 0.25, 0.75]]
    torch.testing.assert_close(found.probability, torch.tensor(want, dtype=torch.float64))


def test_a_shift_moves_log_odds_and_leaves_certainty():
    found = shift_odds(some(), math.log(3))
    torch.testing.assert_close(found.wrong, torch.tensor([0.75, 0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(shift_odds(some(), 0.0).probability, some().probability)


def test_shares_of_draws():
    found = draw_worlds(some(), 4000, 0.0, seed=1)
    assert (found[:, 1] == 1).all()
    share = [(found[:, 0] == c).double().mean().item() for c in range(3)]
    assert share == pytest.approx([0.5, 0.3, 0.2], abs=4 * 0.5 / math.sqrt(4000))  # four standard errors
    assert (found[:, 2] == 0).double().mean().item() == pytest.approx(0.75, abs=4 * 0.44 / math.sqrt(4000))
    assert torch.equal(found, draw_worlds(some(), 4000, 0.0, seed=1))
    assert not torch.equal(found, draw_worlds(some(), 4000, 0.0, seed=2))


def test_labels_of_a_world_share_their_shift():
    many = Candidates(torch.tensor([[0, 1]]).repeat(500, 1), torch.full((500, 2), 0.5, dtype=torch.float64))
    alone, shared = (draw_worlds(many, 200, spread).double().mean(1).std() for spread in (0.0, 1.0))
    # without a shift the share of wrong labels varies by sqrt(1/4 / 500); with it by about the deviation of a sigmoid of N(0, 1)
    assert alone == pytest.approx(0.0224, rel=0.25) and shared == pytest.approx(0.208, rel=0.2)


def suspects(n=60, wrong=0.8):
    """Half of the samples would go from class 0 to 1, half from 2 to 3."""
    first = torch.arange(n) < n // 2
    label = torch.where(first[:, None], torch.tensor([0, 1, 4]), torch.tensor([2, 3, 4]))
    return Candidates(label, torch.tensor([1 - wrong, wrong - 0.1, 0.1], dtype=torch.float64).repeat(n, 1))


def test_one_shift_by_hand():
    """The most probable shift b of one kind solves: outcomes - sum of sigmoid(odds + b) = b / spread^2."""
    kinds = {"all": np.zeros(5, int)}
    p, happened = np.full(5, 0.6), np.array([False, False, True, False])
    found = shifted(p, kinds, np.arange(4), happened)
    odds = math.log(0.6 / 0.4)
    low, high = -10.0, 10.0
    for _ in range(100):
        b = (low + high) / 2
        low, high = (b, high) if 1 - 4 / (1 + math.exp(-(odds + b))) > b else (low, b)
    assert found == pytest.approx([1 / (1 + math.exp(-(odds + b)))] * 5, abs=1e-6)


def test_ten_rejections_of_one_kind_change_the_rest_of_that_kind_most():
    before = suspects()
    rows = torch.arange(10)
    found = update_posterior(before, rows, before.label[rows, 0])  # all kept
    same, other = float(found.wrong[20]), float(found.wrong[50])
    assert same < 0.35 and same < other < 0.8
    assert (found.wrong[rows] < 0.01).all()


def test_confirmations_raise_the_rest():
    before = suspects()
    rows = torch.arange(10)
    found = update_posterior(before, rows, before.label[rows, 1])
    assert 0.85 < float(found.wrong[20]) < 1 and (found.probability[rows, 1] > 0.99).all()
    best = found.probability[20, 1] / found.wrong[20]
    assert best > before.probability[20, 1] / before.wrong[20]  # the suggestion was right each time


def test_more_decisions_move_more():
    before = suspects()
    moved = [float(update_posterior(before, torch.arange(n), before.label[:n, 0]).wrong[29]) for n in (1, 3, 10, 25)]
    assert all(a > b for a, b in itertools.pairwise(moved))


def test_it_is_a_pure_function_and_the_order_of_decisions_does_not_matter():
    before = suspects()
    label, probability = before.label.clone(), before.probability.clone()
    rows = torch.tensor([3, 40, 12])
    chosen = torch.tensor([0, 3, 1])
    one, other = (
        update_posterior(before, rows[o], chosen[o]) for o in (torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1]))
    )
    torch.testing.assert_close(one.probability, other.probability, rtol=1e-9, atol=1e-12)
    assert torch.equal(before.label, label) and torch.equal(before.probability, probability)
    torch.testing.assert_close(one.probability.sum(1), torch.ones(60, dtype=torch.float64))
    nothing = update_posterior(before, rows[:0], chosen[:0])
    assert torch.equal(nothing.probability, before.probability)


def test_calibrated_decisions_leave_the_rest_about_as_it_was():
    before = suspects(n=400, wrong=0.5)
    rows = torch.arange(0, 400, 4)
    chosen = torch.where(torch.arange(100) % 2 == 0, before.label[rows, 0], before.label[rows, 1])
    found = update_posterior(before, rows, chosen)
    left = torch.ones(400, dtype=torch.bool).index_fill_(0, rows, False)
    assert float((found.wrong[left] - 0.5).abs().max()) < 0.02


def test_a_class_that_was_no_candidate():
    before = suspects()
    found = update_posterior(before, torch.tensor([5]), torch.tensor([17]))
    assert 17 in found.label[5].tolist() and float(found.probability[5][found.label[5] == 17]) > 0.99


def test_the_shift_moves_sure_probabilities_by_their_own_odds():
    kinds = {"all": np.zeros(3, dtype=int)}
    found = shifted(np.array([1e-8, 0.5, 0.9999]), kinds, np.array([1]), np.array([True]))
    assert found[1] > 0.5 and found[2] > 0.9999
    ratio = (found / (1 - found)) / np.array([1e-8, 1.0, 9999.0])
    np.testing.assert_allclose(ratio, ratio[1], rtol=1e-6)
