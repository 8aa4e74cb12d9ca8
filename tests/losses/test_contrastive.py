import math

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss

from likewise.losses import Contrastive
from likewise.types import LikewiseError


def by_hand(z, y, margin, pull_margin):
    each = []
    for i in range(len(y)):
        pull, push = [], []
        for j in range(len(y)):
            d = math.dist(z[i].tolist(), z[j].tolist())
            if i != j and y[i] == y[j]:
                pull.append(max(0, d - pull_margin))
            elif y[i] != y[j] and d < margin:
                push.append(margin - d)
        each.append(sum(pull) / max(1, len(pull)) + sum(push) / max(1, len(push)))
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize(("margin", "pull_margin"), [(1.0, 0.0), (0.6, 0.2)])
def test_all_pairs_by_hand(golden, margin, pull_margin):
    found = Contrastive(margin=margin, pull_margin=pull_margin)(golden.z, golden.y)
    torch.testing.assert_close(found, by_hand(golden.z, golden.y, margin, pull_margin))


def test_with_triplets_it_is_the_papers_value(golden):
    each = Contrastive(miner=golden.miner)(golden.z, golden.y)
    torch.testing.assert_close(each, golden.each["contrastive"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value["contrastive"], abs_tol=1e-8)


@pytest.mark.parity
def test_agrees_with_pytorch_metric_learning_on_the_same_triplets(golden):
    a, p, n = torch.tensor(golden.miner.triplets).T
    from pytorch_metric_learning.reducers import MeanReducer

    other = ContrastiveLoss(reducer=MeanReducer())(golden.z, golden.y, (a, p, a, n))
    assert math.isclose(Contrastive(miner=golden.miner)(golden.z, golden.y).mean().item(), other.item(), abs_tol=1e-6)


def test_margins_that_mean_nothing_are_refused():
    for margin, pull_margin in ((-1.0, 0.0), (0.5, 0.6), (2.5, 0.0)):
        with pytest.raises(LikewiseError, match=f"margin={margin}"):
            Contrastive(margin=margin, pull_margin=pull_margin)
