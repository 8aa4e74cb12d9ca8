"""The plain classifier: by hand, against torch's linear layer and cross-entropy, and what it predicts."""

import math

import pytest
import torch
from likewise.contracts import Loss, input_of
from likewise.losses import ForwardCorrection, Softmax
from likewise.types import LikewiseError
from torch import nn
from torch.nn import functional as F

from likewise.core.settings.spec import build


def by_hand(z, y, proxies):
    each = []
    for e, label in zip(z.tolist(), y.tolist()):
        logits = [sum(a * b for a, b in zip(e, row[:-1])) + row[-1] for row in proxies.tolist()]
        each.append(math.log(sum(math.exp(v) for v in logits)) - logits[label])
    return torch.tensor(each, dtype=torch.float64)


def made():
    torch.manual_seed(0)
    return Softmax(classes=6, dim=8).double()


def test_by_hand_on_raw_embeddings(golden):
    loss = made()
    assert loss.input == "raw" and (golden.raw.norm(dim=1) - 1).abs().max() > 0.1
    torch.testing.assert_close(loss(golden.raw, golden.y).detach(), by_hand(golden.raw, golden.y, loss.proxies))


@pytest.mark.parity
def test_value_and_gradients_are_those_of_torchs_linear_layer(golden):
    loss, layer = made(), nn.Linear(8, 6).double()
    layer.weight.data, layer.bias.data = loss.proxies.data[:, :-1].clone(), loss.proxies.data[:, -1].clone()
    a, b = golden.raw.clone().requires_grad_(), golden.raw.clone().requires_grad_()
    mine, theirs = loss(a, golden.y), F.cross_entropy(layer(b), golden.y, reduction="none")
    torch.testing.assert_close(mine, theirs)
    mine.mean().backward()
    theirs.mean().backward()
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(loss.proxies.grad, torch.cat([layer.weight.grad, layer.bias.grad[:, None]], 1))
    assert torch.equal(loss.predict(golden.raw), layer(golden.raw).argmax(1))


def test_initial_values_are_those_of_a_linear_layer():
    torch.manual_seed(0)
    proxies = Softmax(classes=50, dim=16).proxies
    assert proxies.shape == (50, 17) and 0.24 < proxies.abs().max() <= 0.25


def test_longer_embeddings_are_surer():
    """The length of an embedding counts, which a cosine classifier ignores."""
    loss = made()
    loss.proxies.data = torch.eye(6, 9, dtype=torch.float64)
    e, y = torch.eye(8, dtype=torch.float64)[:1], torch.tensor([0])
    short, long = loss(e, y), loss(5 * e, y)
    torch.testing.assert_close(short.detach(), torch.tensor([math.log(1 + 5 / math.e)], dtype=torch.float64))
    torch.testing.assert_close(long.detach(), torch.tensor([math.log(1 + 5 * math.exp(-5))], dtype=torch.float64))


def test_it_cannot_be_grouped_by_the_directions_of_its_rows():
    with pytest.raises(LikewiseError, match="Hierarchical.*Softmax"):
        build("Hierarchical(loss=Softmax(), coarse=2)", Loss, classes=6, dim=8, per_pass=1)


def test_forward_correction_without_noise_and_temperature_is_this_classifier(golden):
    plain = made()
    loss = ForwardCorrection(classes=6, dim=8, share=0.0, temperature=None).double()
    loss.proxies.data = plain.proxies.data.clone()
    assert loss.input == input_of(loss) == "raw"
    torch.testing.assert_close(loss(golden.raw, golden.y), plain(golden.raw, golden.y))
    assert torch.equal(loss.predict(golden.raw), plain.predict(golden.raw))


def test_several_labels_by_hand(golden, graded):
    """The mean over the labels of a sample of the cross-entropy with each."""
    loss, each = Softmax(classes=5, dim=8).double().with_relevance(graded.shared), []
    for e, labels in zip(golden.raw, graded.labels, strict=True):
        logits = (loss.proxies[:, :8] @ e + loss.proxies[:, 8]).tolist()
        total = math.log(sum(math.exp(v) for v in logits))
        each.append(sum(total - logits[c] for c in labels) / len(labels))
    torch.testing.assert_close(loss(golden.raw, graded.ids), torch.tensor(each, dtype=torch.float64))
