import math

import pytest
import torch
from likewise.losses import Contrastive
from likewise.types import LikewiseError, Ref

from likewise.testing.loss import JudgedBatch


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


def test_margins_that_mean_nothing_are_refused():
    for margin, pull_margin in ((-1.0, 0.0), (0.5, 0.6), (2.5, 0.0)):
        with pytest.raises(LikewiseError, match=f"margin={margin}"):
            Contrastive(margin=margin, pull_margin=pull_margin)


def test_graded_by_hand(golden, graded):
    """Every pair is pulled with its relevance r and pushed with 1 - r."""
    each = []
    for i in range(12):
        pairs = [(float((golden.z[i] - golden.z[j]).norm()), r) for j, r in graded.known(i)]
        pull, push = sum(r for _, r in pairs), sum(1 - r for d, r in pairs if d < 1.2)
        value = sum(r * max(0, d - 0.3) for d, r in pairs) / pull if pull else 0.0
        each.append(value + (sum((1 - r) * max(0, 1.2 - d) for d, r in pairs) / push if push else 0.0))
    found = Contrastive(margin=1.2, pull_margin=0.3).with_relevance(graded.relevance)(golden.z, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64))


def test_judged_triplets_replace_the_pairs(golden):
    """With a relevance of triplets only, a loss without a miner takes these."""
    loss = Contrastive().with_relevance(JudgedBatch(12))
    z, each = golden.z, []
    for a in range(12):
        near, far = ((z[a] - z[(a + step) % 12]).norm() for step in (1, 2))
        each.append(near + (1 - far).relu())
    torch.testing.assert_close(loss(z, torch.arange(12)), torch.stack(each))
    with pytest.raises(LikewiseError, match="JudgedBatch: judged triplets"):
        loss(z, torch.arange(12), Ref(z, torch.arange(12)))
