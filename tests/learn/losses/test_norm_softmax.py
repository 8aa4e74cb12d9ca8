import math

import torch
from likewise.losses import NormSoftmax


def by_hand(z, y, proxies, temperature):
    each = []
    for i in range(len(y)):
        logits = []
        for c in range(len(proxies)):
            length = math.sqrt(sum(float(v) ** 2 for v in proxies[c]))
            logits.append(sum(float(a) * float(b) for a, b in zip(z[i], proxies[c])) / length / temperature)
        each.append(math.log(sum(math.exp(v) for v in logits)) - logits[int(y[i])])
    return torch.tensor(each, dtype=torch.float64)


def made(golden):
    loss = NormSoftmax(classes=6, dim=8).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


def test_by_hand_and_golden(golden):
    each = made(golden)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, by_hand(golden.z, golden.y, golden.proxies, 0.05))
    torch.testing.assert_close(each, golden.each["norm_softmax"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value["norm_softmax"], abs_tol=1e-8)


def test_several_labels_by_hand(golden, graded):
    """The mean over the labels of a sample of the cross-entropy with each."""
    loss = NormSoftmax(classes=5, dim=8, temperature=0.1).double().with_relevance(graded.shared)
    unit, each = torch.nn.functional.normalize(loss.proxies.detach(), dim=1), []
    for i, labels in enumerate(graded.labels):
        logits = [s / 0.1 for c, s in enumerate((unit @ golden.z[i]).tolist())]
        total = math.log(sum(math.exp(v) for v in logits))
        each.append(sum(total - logits[c] for c in labels) / len(labels))
    torch.testing.assert_close(loss(golden.z, graded.ids), torch.tensor(each, dtype=torch.float64))
