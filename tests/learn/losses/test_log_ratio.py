import math

import pytest
import torch
from likewise.losses import LogRatio
from likewise.relevance import GivenValues

from likewise.learn.losses.log_ratio import MIN_DISTANCE


def by_hand(e, pairs_of, least):
    """The formula of the paper, triplet by triplet."""
    each, has = [], 0
    for a in range(len(e)):
        pairs, total, count = pairs_of(a), 0.0, 0
        for i, r_i in pairs:
            for j, r_j in pairs:
                if i != j:
                    d_i, d_j = (float((e[a] - e[k]).square().sum()) + MIN_DISTANCE for k in (i, j))
                    wanted = math.log((1 - r_i + least) / (1 - r_j + least))
                    total, count = total + (math.log(d_i / d_j) - wanted) ** 2, count + 1
        each.append(total / max(count, 1))
        has += count > 0
    return torch.tensor(each, dtype=torch.float64) * len(e) / has


@pytest.mark.parametrize("least", [0.1, 1.0])
def test_by_hand(golden, graded, least):
    e, y = golden.raw, golden.y.tolist()
    found = LogRatio(least=least)(e, golden.y)
    torch.testing.assert_close(
        found, by_hand(e, lambda a: [(j, float(y[j] == y[a])) for j in range(12) if j != a], least)
    )
    found = LogRatio(least=least).with_relevance(graded.relevance)(e, graded.ids)
    torch.testing.assert_close(found, by_hand(e, lambda a: graded.known(a), least))


def test_the_optimum():
    """Distances in proportion to the irrelevance have the value 0, at any scale."""
    place = torch.tensor([[0.0], [1.0], [2.0], [4.0]], dtype=torch.float64)
    irrelevance = (place - place.T).square() / 16  # squared, as the distances of the loss
    loss = LogRatio(least=1e-9).with_relevance(GivenValues((1 - irrelevance).float()))
    assert loss(1000 * place, torch.arange(4)).max() < 1e-9
    assert loss(1000 * place.square(), torch.arange(4)).max() > 0.1
