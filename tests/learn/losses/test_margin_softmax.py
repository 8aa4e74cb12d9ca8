import math

import pytest
import torch
from likewise.losses import NormSoftmax
from likewise.types import LikewiseError

from likewise.learn.losses._margin_softmax import margin_softmax, target_cross_entropy, uniform_proxies
from likewise.testing.loss import ClassRelevance

PROXIES = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(("margin", "with_own"), [(0.0, True), (0.3, True), (0.3, False)])
def test_by_hand(margin, with_own):
    z, y = torch.tensor([[0.6, 0.8]], dtype=torch.float64), torch.tensor([1])
    found = margin_softmax(z, y, PROXIES, 3, 4.0, lambda own: own - margin, with_own)
    logits = [4 * 0.6, 4 * 0.8 - margin, -4 * 0.6]
    total = sum(math.exp(v) for c, v in enumerate(logits) if with_own or c != 1)
    assert found.item() == pytest.approx(math.log(total) - logits[1])


def test_sixteen_bit_embeddings_are_compared_in_float32():
    z, y = torch.tensor([[0.6, 0.8]], dtype=torch.bfloat16), torch.tensor([0])
    assert margin_softmax(z, y, PROXIES.float(), 3, 4.0).dtype == torch.float32


def test_proxies_are_drawn_within_their_bounds():
    torch.manual_seed(0)
    assert 0.24 < uniform_proxies(50, 16).abs().max() <= 0.25


def test_soft_targets_by_hand():
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    r = torch.tensor([[1.0, 0.25, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    each = []
    for x, q in zip(logits[:2].tolist(), r.tolist(), strict=False):
        total = math.log(sum(math.exp(v) for v in x))
        each.append(sum(w / sum(q) * (total - v) for v, w in zip(x, q, strict=True)))
    found = target_cross_entropy(logits, r, 1.0)
    torch.testing.assert_close(found, torch.tensor([*each, 0.0], dtype=torch.float64))


def test_a_proxy_for_each_target():
    relevance = ClassRelevance(torch.eye(4))
    with pytest.raises(LikewiseError, match="ClassRelevance: the loss must have a proxy for each of 4 targets, got 3"):
        margin_softmax(torch.eye(3), torch.arange(3), torch.eye(3), 3, 1.0, relevance=relevance)
    with pytest.raises(LikewiseError, match="NormSoftmax: it must have a proxy for each of the 4 targets.*classes=3"):
        NormSoftmax(classes=3, dim=3).with_relevance(relevance)
