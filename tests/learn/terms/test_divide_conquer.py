"""Divide and conquer: the learner of a batch by hand, and which slices a training changes."""

import pytest
import torch
from likewise.losses import Margin, ProxyNCA
from likewise.terms import DivideConquer
from likewise.types import Batch, LikewiseError, Output
from torch.nn import functional as F

from likewise.models import Embedder
from likewise.models.heads import Slices


def made(dim=6, k=3, make_loss=lambda dim: ProxyNCA(classes=4, dim=dim)):
    torch.manual_seed(0)
    network = Embedder("features", dim, lambda features, dim: Slices(features, dim, k=k), features=5)
    return DivideConquer(make_loss, network), network.head


def output(head, size=8):
    f = torch.randn(size, 5, generator=torch.Generator().manual_seed(1))
    e, nodes, rec = head(f)
    return Output(F.normalize(e, dim=1), e, f, nodes, rec)


def batch(group, size=8):
    group = None if group is None else torch.full((size,), group)
    return Batch(torch.zeros(size, 1), torch.arange(size) % 4, torch.arange(size), group)


@pytest.mark.parametrize("group", [0, 1, 2, -1])
def test_each_cluster_trains_its_slice_and_its_loss(group):
    term, head = made()
    out = output(head)
    raw = head.fc(out.f)
    slice_ = raw if group < 0 else raw[:, 2 * group : 2 * group + 2]
    part = F.normalize(slice_, dim=1) if group >= 0 else F.normalize(out.nodes.flatten(1), dim=1)
    loss = term.whole if group < 0 else term.losses[group]
    each = term(out, batch(group))
    torch.testing.assert_close(each, loss(part, batch(group).y))
    each.mean().backward()
    changed = head.fc.weight.grad.abs().sum(1).reshape(3, 2).sum(1) > 0
    assert changed.tolist() == ([True] * 3 if group < 0 else [learner == group for learner in range(3)])
    trained = [loss.proxies.grad is not None for loss in (*term.losses, term.whole)]
    assert trained == [learner == group % 4 for learner in range(4)]


class Counting(Margin):
    """Counts the steps, and returns its boundary as replaced."""

    steps = 0

    def after_step(self, step):
        self.steps = step
        return [self.boundaries] if step == 7 else None


def test_hooks_of_every_loss_are_called():
    term, _ = made(make_loss=lambda dim: Counting(classes=4))
    assert term.after_step(6) == []
    assert len(term.after_step(7)) == 4 and [loss.steps for loss in (term.whole, *term.losses)] == [7] * 4


def test_errors():
    with pytest.raises(LikewiseError, match="got Linear; train with --head 'Slices"):
        DivideConquer(lambda dim: Margin(classes=4), Embedder("features", 6, features=5))
    term, head = made()
    with pytest.raises(LikewiseError, match="a sampler without clusters; train with --sampler 'Clustered"):
        term(output(head), batch(None))
    with pytest.raises(LikewiseError, match="a sample of cluster 3 for 3 slices"):
        term(output(head), batch(3))
