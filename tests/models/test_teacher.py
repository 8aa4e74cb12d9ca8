"""The teacher: a moving average, warm at the start, that never learns by itself."""

import copy

import pytest
import torch
from likewise.types import LikewiseError, Output
from torch import nn

from likewise.models.teacher import Teacher


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        e = self.norm(self.layer(x))
        return Output(z=nn.functional.normalize(e, dim=1), e=e, f=x)


def walk(network, seed):
    """Another network: new weights, and BatchNorm statistics of a new batch."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p += torch.randn(p.shape, generator=g)
    network.train()(torch.randn(8, 3, generator=g))


def by_hand(history, momentum):
    """Every weight for itself, through all networks met."""
    kept = history[0]
    for t, new in enumerate(history[1:]):
        keep = min(momentum, (1 + t) / (10 + t))
        kept = [keep * old + (1 - keep) * fresh for old, fresh in zip(kept, new)]
    return kept


def weights(network):
    return [float(v) for p in network.parameters() for v in p.detach().flatten()]


@pytest.mark.parametrize("momentum", [0.999, 0.2, 0.0])
def test_parameters_by_hand_and_buffers_copied(momentum):
    torch.manual_seed(0)
    network = Small()
    teacher, history = Teacher(network, momentum), [weights(network)]
    for seed in range(4):
        walk(network, seed)
        teacher.update(network)
        history.append(weights(network))
    assert weights(teacher.network) == pytest.approx(by_hand(history, momentum), abs=1e-5)
    for mine, theirs in zip(teacher.network.buffers(), network.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert teacher.network.norm.num_batches_tracked == 4


def test_a_network_that_stands_still_is_left_to_the_last_digit():
    network = Small()
    teacher = Teacher(network, 0.9)
    for _ in range(5):
        teacher.update(network)
    assert all(torch.equal(a, b) for a, b in zip(teacher.network.parameters(), network.parameters(), strict=True))


def test_it_judges_as_in_evaluation_gives_no_gradient_and_is_nobodys_parameter():
    network = Small()
    teacher = Teacher(network).train()
    x = torch.randn(5, 3, requires_grad=True)
    before = copy.deepcopy(teacher.state_dict())
    out = teacher(x)
    assert not teacher.training and not teacher.network.training and network.training
    assert not out.z.requires_grad and not any(p.requires_grad for p in teacher.parameters())
    torch.testing.assert_close(out.z, network.eval()(x).z.detach())
    assert all(torch.equal(v, before[k]) for k, v in teacher.state_dict().items())
    assert all(p.requires_grad for p in network.parameters())


def test_it_goes_on_from_its_state():
    torch.manual_seed(1)
    network = Small()
    first = Teacher(network, 0.99)
    walk(network, 0)
    first.update(network)
    late = Teacher(Small(), 0.99)
    late.load_state_dict(first.state_dict())
    walk(network, 1)
    first.update(network)
    late.update(network)
    assert late.updates == 2
    assert all(torch.equal(v, first.state_dict()[k]) for k, v in late.state_dict().items())


def test_bad_momentum():
    with pytest.raises(LikewiseError, match="Teacher: momentum must .*, got 1.0"):
        Teacher(Small(), 1.0)
