"""Order of a review: effects and actions by hand, groups and exceptions, the gain that remains, and when to stop."""

import pytest
import torch

from likewise.labels.label_draws import Candidates
from likewise.labels.review_order import Action, expected_decisions, label_effects, make_actions, remaining_gain


def some():
    """Rows 0 to 3 would become class 9; 4 would become 8; 5 and 6 are unsure, and copies of each other."""
    label = torch.tensor([[0, 9], [0, 9], [1, 9], [2, 9], [0, 8], [3, 8], [3, 8]])
    wrong = torch.tensor([0.9, 0.8, 0.7, 0.5, 0.95, 0.55, 0.55], dtype=torch.float64)
    return Candidates(label, torch.stack([1 - wrong, wrong], 1))


def rows_of(actions):
    return [one.rows for one in actions]


def test_effects_by_hand():
    found = label_effects(torch.tensor([4, 4, 4, 7, 7, 9]), torch.tensor([True, True, True, True, False, False]))
    # classes of 3 and 1 training samples: weights 1/3, 1/3, 1/3, 1, scaled to a mean of 1 over the four
    assert found.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2, 0, 0])
    assert label_effects(torch.tensor([1, 2]), torch.tensor([False, False])).tolist() == [0, 0]


def test_actions_by_hand():
    candidates, every = some(), torch.arange(7)
    gain = candidates.wrong
    single = make_actions(candidates, every, gain, by="single")
    assert rows_of(single) == [(4,), (0,), (1,), (2,), (5,), (6,), (3,)]
    pairs = make_actions(candidates, every, gain, by="pair")
    assert rows_of(pairs)[0] == (0, 1) and pairs[0].gain == pytest.approx(1.7) and pairs[0].cost == pytest.approx(1.3)
    groups = make_actions(candidates, every, gain, by="suggested", cluster=torch.tensor([0, 1, 2, 3, 4, 5, 5]))
    assert rows_of(groups) == [(0, 1, 2), (4,), (5, 6), (3,)]
    assert groups[0].suggested == 9 and groups[0].cost == pytest.approx(1 + 0.1 + 0.2 + 0.3)
    assert sorted(row for one in groups for row in one.rows) == list(range(7))


def test_large_groups_are_divided():
    candidates = Candidates(torch.tensor([[0, 1]]).repeat(7, 1), torch.tensor([[0.1, 0.9]]).repeat(7, 1))
    found = make_actions(candidates, torch.arange(7), candidates.wrong, max_size=3)
    assert sorted(len(one.rows) for one in found) == [1, 3, 3] and len({row for one in found for row in one.rows}) == 7


def test_the_order_of_rows_does_not_matter():
    candidates = some()
    one, other = (
        make_actions(candidates, torch.tensor(rows), candidates.wrong) for rows in ([0, 1, 2, 4], [4, 2, 1, 0])
    )
    assert one == other


def test_remaining_gain_and_number_of_decisions():
    actions = [Action((0, 1), 3, 0.6, 2.0), Action((2,), 3, 0.2, 1.0), Action((3,), 3, -0.5, 1.0)]
    assert remaining_gain(actions, 1) == pytest.approx(0.3) and remaining_gain(actions, 3) == pytest.approx(0.8)
    assert remaining_gain(actions, 10) == pytest.approx(0.8) and remaining_gain([], 5) == 0
    assert expected_decisions([0.9]) == 1 and expected_decisions([0.9, 0.7]) == pytest.approx(1.4)
