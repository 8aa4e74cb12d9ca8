import math

import pytest
import torch
from likewise.contracts import Loss
from likewise.losses import NormSoftmax
from likewise.types import LikewiseError

from likewise.core.settings.spec import build
from likewise.learn.losses._margin_softmax import margin_softmax, target_cross_entropy
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
    with pytest.raises(LikewiseError, match="a proxy for each of 4 targets, got 3"):
        margin_softmax(torch.eye(3), torch.arange(3), torch.eye(3), 3, 1.0, relevance=relevance)
    with pytest.raises(LikewiseError, match="each of the 4 targets.*classes=3"):
        NormSoftmax(classes=3, dim=3).with_relevance(relevance)


def arc(scale, margin):
    """Logit of the own class from its angle; beyond pi the cosine falls on in a straight line."""

    def own(cosine):
        angle = math.acos(cosine)
        return scale * (math.cos(angle + margin) if angle + margin <= math.pi else cosine - margin * math.sin(margin))

    return own


LOSSES = {  # loss -> (scale of the cosines, logit of the own class from its cosine)
    "ArcFace()": (16, arc(16, 0.5)),
    "ArcFace(scale=4.0, margin=1.5)": (4, arc(4, 1.5)),
    "ArcFace(scale=30.0, margin=0.0)": (30, arc(30, 0)),
    "CosFace()": (64, lambda cosine: 64 * (cosine - 0.35)),
    "CosFace(scale=10.0, margin=0.1)": (10, lambda cosine: 10 * (cosine - 0.1)),
    "CosFace(scale=300.0, margin=1.0)": (300, lambda cosine: 300 * (cosine - 1)),
    "NormSoftmax()": (20, lambda cosine: 20 * cosine),
    "NormSoftmax(temperature=0.5)": (2, lambda cosine: 2 * cosine),
}
GOLDEN = {"ArcFace()": "arcface", "NormSoftmax()": "norm_softmax"}


def made(text, proxies):
    loss = build(text, Loss, classes=len(proxies), dim=8).double()
    loss.proxies.data = proxies.clone()
    return loss


def logits_by_hand(text, z, proxies, own):
    """The logits of a sample, those of the classes in `own` with margin."""
    scale, with_margin = LOSSES[text]
    cosines = [sum(a * b for a, b in zip(z, p)) / math.hypot(*p) for p in proxies]
    return [with_margin(cosine) if c in own else scale * cosine for c, cosine in enumerate(cosines)]


def log_sum(logits):
    top = max(logits)
    return top + math.log(sum(math.exp(v - top) for v in logits))


@pytest.mark.parametrize("text", LOSSES)
def test_losses_by_hand_and_golden(text, golden):
    each = made(text, golden.proxies)(golden.z, golden.y).detach()
    expected = []
    for z, label in zip(golden.z.tolist(), golden.y.tolist()):
        logits = logits_by_hand(text, z, golden.proxies.tolist(), {label})
        expected.append(log_sum(logits) - logits[label])
    torch.testing.assert_close(each, torch.tensor(expected, dtype=torch.float64))
    if text in GOLDEN:
        torch.testing.assert_close(each, golden.each[GOLDEN[text]], rtol=0, atol=1e-8)
        assert math.isclose(each.mean().item(), golden.value[GOLDEN[text]], abs_tol=1e-8)


@pytest.mark.parametrize("text", LOSSES)
def test_several_labels_by_hand(text, golden, graded):
    """The mean over the labels of a sample of the cross-entropy with each, and the margin on all of them."""
    loss, each = made(text, golden.proxies[:5]).with_relevance(graded.shared), []
    for z, labels in zip(golden.z.tolist(), graded.labels):
        logits = logits_by_hand(text, z, golden.proxies[:5].tolist(), labels)
        each.append(log_sum(logits) - sum(logits[c] for c in labels) / len(labels))
    torch.testing.assert_close(loss(golden.z, graded.ids).detach(), torch.tensor(each, dtype=torch.float64))
