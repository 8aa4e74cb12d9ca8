"""Draws of true labels: candidates by hand, shares of the draws, and a shift that all labels of a world share."""

import math

import pytest
import torch

from likewise.labels.label_draws import Candidates, draw_worlds, keep_candidates, shift_odds


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
