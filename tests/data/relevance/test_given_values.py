import math

import pytest
import torch
from likewise.relevance import GivenValues
from likewise.types import LikewiseError

from likewise.testing import check_relevance

VALUES = torch.tensor([[1.0, 0.5, 0.0], [0.2, 1.0, math.nan], [0.0, 0.7, 1.0]])


def test_the_contract():
    check_relevance(lambda: GivenValues(VALUES))


def test_values_by_row_and_column():
    relevance = GivenValues(VALUES, threshold=0.6)
    found = relevance(torch.tensor([2, 0]), torch.tensor([1, 1, 2]))
    assert torch.equal(found, torch.tensor([[0.7, 0.7, 1.0], [0.5, 0.5, 0.0]]))
    pairs = relevance.pairs(torch.arange(3), torch.arange(3))
    assert pairs.pos.tolist() == [[True, False, False], [False, True, False], [False, True, True]]
    assert not pairs.neg[1, 2] and pairs.value[1, 2] == 0  # not known: in no mask


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="from 0 to 1 or NaN, got 0 to 2"):
        GivenValues(torch.tensor([[0.0, 2.0], [1.0, 1.0]]))
