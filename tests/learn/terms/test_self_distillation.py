"""The teacher is the network of the pass before; its rows by hand."""

import copy

import pytest
import torch
from likewise.terms import SelfDistillation
from likewise.types import Batch
from torch import nn
from torch.nn import functional as F

from likewise.learn.terms.self_distillation import kl_rows, similarities


def batch(seed=0, size=6):
    torch.manual_seed(seed)
    return Batch(torch.randn(size, 4), torch.tensor([0, 0, 1, 1, 2, 2][:size]), torch.arange(size))


def move(net):
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p))


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_by_hand(net, kl_by_hand, temperature):
    term = SelfDistillation(net, per_pass=3, steps=12, temperature=temperature)
    b = batch()
    move(net)
    assert term(net(b.x), b).abs().max() == 0, "nothing in the first pass"
    before = copy.deepcopy(net)
    for step in range(1, 7):
        term.after_step(step)  # two passes of four are over
    move(net)
    found = term(net(b.x), b)
    teacher, student = (n(b.x).z @ n(b.x).z.T for n in (before, net))
    torch.testing.assert_close(found, 2 / 4 * kl_by_hand(teacher, student, temperature), rtol=1e-4, atol=1e-6)
    assert found.min() > 0


def test_the_teacher_is_refreshed_at_the_end_of_a_pass_alone(net):
    net.register_buffer("count", torch.zeros(()))
    term = SelfDistillation(net, per_pass=2, steps=8)
    move(net)
    term.after_step(1)
    assert not torch.equal(term.teacher.head.weight, net.head.weight)
    net.count.fill_(5)
    term.after_step(2)
    assert torch.equal(term.teacher.head.weight, net.head.weight) and term.teacher.count == 5
    move(net)
    assert not torch.equal(term.teacher.head.weight, net.head.weight), "a copy, not the network itself"


def test_gradient_reaches_the_network_and_never_the_teacher(net):
    term = SelfDistillation(net, per_pass=1, steps=4)
    term.after_step(1)
    move(net)
    b = batch()
    term(net(b.x), b).mean().backward()
    assert net.head.weight.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in term.teacher.parameters())


def test_the_teacher_stays_in_evaluation_mode_and_the_network_is_no_part_of_the_term(net):
    net.drop = nn.Dropout(0.5)
    term = SelfDistillation(net, per_pass=1, steps=4)
    term.train()
    assert term.training and net.training and not term.teacher.training and not term.teacher.drop.training
    assert {name.split(".")[0] for name in term.state_dict()} == {"teacher", "ramp"}
    assert not any(p is q for p in term.parameters() for q in net.parameters())


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_rows_by_hand(kl_by_hand, temperature):
    torch.manual_seed(0)
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(kl_rows(a, b, temperature), kl_by_hand(a, b, temperature))
    assert not torch.allclose(kl_rows(a, b, temperature), kl_rows(b, a, temperature))
    torch.testing.assert_close(kl_rows(a, a + 3), torch.zeros(5, dtype=torch.float64))


@pytest.mark.parity
def test_agrees_with_torch():
    torch.manual_seed(1)
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    other = F.kl_div(b.log_softmax(1), a.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(kl_rows(a, b), other)


def test_similarities_keep_their_precision_under_autocast():
    torch.manual_seed(2)
    z = F.normalize(torch.randn(6, 32), dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = similarities(z)
        assert (z @ z.T).dtype == torch.bfloat16
    torch.testing.assert_close(found, z @ z.T, rtol=0, atol=1e-6)
