import math

import pytest
import torch
from likewise.losses import CosFace, NormSoftmax


def by_hand(z, y, proxies, scale, margin):
    each = []
    for i in range(len(y)):
        logits = []
        for c in range(len(proxies)):
            length = math.sqrt(sum(float(v) ** 2 for v in proxies[c]))
            cosine = sum(float(a) * float(b) for a, b in zip(z[i], proxies[c])) / length
            logits.append(scale * (cosine - margin if c == int(y[i]) else cosine))
        top = max(logits)
        each.append(top + math.log(sum(math.exp(v - top) for v in logits)) - logits[int(y[i])])
    return torch.tensor(each, dtype=torch.float64)


def made(golden, **settings):
    loss = CosFace(classes=6, dim=8, **settings).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


@pytest.mark.parametrize(("scale", "margin"), [(64.0, 0.35), (10.0, 0.1), (300.0, 1.0)])
def test_by_hand(golden, scale, margin):
    each = made(golden, scale=scale, margin=margin)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, by_hand(golden.z, golden.y, golden.proxies, scale, margin))


def test_without_margin_it_is_norm_softmax(golden):
    other = NormSoftmax(classes=6, dim=8).double()
    other.proxies.data = golden.proxies.clone()
    torch.testing.assert_close(made(golden, scale=20.0, margin=0.0)(golden.z, golden.y), other(golden.z, golden.y))


def test_the_defaults_are_the_papers():
    loss = CosFace(classes=3, dim=2)
    assert (loss.scale, loss.margin) == (64.0, 0.35)


def test_several_labels_by_hand(golden, graded):
    """The mean over the labels of a sample of the cross-entropy with each, and the margin on all of them."""
    loss = CosFace(classes=5, dim=8, scale=8.0, margin=0.3).double().with_relevance(graded.shared)
    unit, each = torch.nn.functional.normalize(loss.proxies.detach(), dim=1), []
    for i, labels in enumerate(graded.labels):
        logits = [8 * (s - 0.3 * (c in labels)) for c, s in enumerate((unit @ golden.z[i]).tolist())]
        total = math.log(sum(math.exp(v) for v in logits))
        each.append(sum(total - logits[c] for c in labels) / len(labels))
    torch.testing.assert_close(loss(golden.z, graded.ids), torch.tensor(each, dtype=torch.float64))
