import copy

import pytest
import torch
from bare_work import LOSSES
from likewise.contracts import Loss
from likewise.losses import Contrastive, CrossBatchMemory, MultiSimilarity, NormSoftmax, SupCon
from likewise.relevance import GivenValues
from likewise.types import LikewiseError, Ref
from torch.nn import functional as F

from likewise.core.settings.spec import build, spec

INNER = [n for n in LOSSES if not any(p.ndim == 2 for p in build(n, Loss, classes=6, dim=8).parameters())]
INNER.remove("CrossBatchMemory")
INNER.remove("HierarchicalTriplet")  # which has a memory of its own, of class means


def batch(seed, size=6, dim=8):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(size) // 2 % 4
    return F.normalize(torch.randn(size, dim, generator=g, dtype=torch.float64), dim=1), y


def step(loss, number, size=6):
    z, y = batch(number, size)
    each = loss(z.requires_grad_(), y)
    each.mean().backward()
    loss.after_step(number)
    return each.detach(), z.grad


def make(inner="Contrastive", **arguments):
    text = f"CrossBatchMemory(loss={inner}()" + "".join(f", {k}={v}" for k, v in arguments.items()) + ")"
    return build(text, Loss, classes=6, dim=8).double()


def by_hand(z, y, memory, margin=1.0):
    """Contrastive over batch and memory, one pair at a time; `memory` is a list of (embedding, label)."""
    each = []
    for i in range(len(y)):
        pull, push = [], []
        for j, (other, label) in enumerate([*zip(z, y), *memory]):
            d = float((z[i] - other).norm())
            if label == y[i] and j != i:
                pull.append(d)
            elif label != y[i] and d < margin:
                push.append(margin - d)
        each.append(sum(pull) / max(1, len(pull)) + sum(push) / max(1, len(push)))
    return torch.tensor(each, dtype=torch.float64)


def test_by_hand_while_it_fills_and_when_it_wraps_around():
    loss, past = make(size=15), []
    for number in range(1, 7):
        z, y = batch(number)
        torch.testing.assert_close(step(loss, number)[0], by_hand(z, y, past[-15:]))
        past += [*zip(z, y)]
        assert loss.filled == min(15, len(past)) and loss.next_row == len(past) % 15
    kept = sorted(map(tuple, loss.memory.tolist()))
    assert kept == sorted(tuple(z.tolist()) for z, _ in past[-15:])


def test_a_batch_larger_than_the_memory_leaves_its_newest_samples():
    loss = make(size=4)
    for number in (1, 2):
        step(loss, number)
    z, y = batch(2)
    assert sorted(loss.memory.tolist()) == sorted(z[-4:].tolist()) and loss.filled == 4
    torch.testing.assert_close(step(loss, 3)[0], by_hand(*batch(3), [*zip(z[-4:], y[-4:])]))


@pytest.mark.parametrize("inner", INNER)
def test_an_empty_memory_changes_nothing_for_any_loss(inner):
    loss = make(inner, size=9)
    (z, y), plain = batch(1), build(inner, Loss, classes=6, dim=8).double()
    plain.load_state_dict(loss.loss.state_dict())
    found = []
    for part in (loss, plain):
        torch.manual_seed(0)
        z = z.detach().requires_grad_()
        each = part(z, y)
        found.append((each.detach(), torch.autograd.grad(each.mean(), z)[0]))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("inner", INNER)
def test_rows_not_filled_yet_do_not_exist_for_any_loss(inner):
    loss = make(inner, size=20)
    step(loss, 1)
    z, y = batch(2)
    ref = Ref(torch.cat([z, loss.memory[:6]]), torch.cat([y, loss.memory_y[:6]]), torch.arange(6))
    torch.manual_seed(0)
    found = loss(z, y)
    torch.manual_seed(0)
    torch.testing.assert_close(found, loss.loss(z, y, ref))


@pytest.mark.parametrize("after", [1, 3])
def test_training_goes_on_exactly_from_its_state(after):
    loss = make(size=15)
    for number in range(1, after + 1):
        step(loss, number)
    late = make(size=15)
    late.load_state_dict(copy.deepcopy(loss.state_dict()))
    for number in range(after + 1, after + 4):
        torch.testing.assert_close(step(loss, number), step(late, number), rtol=0, atol=0)


def test_only_a_step_of_training_is_remembered():
    loss = make(size=15)
    before = copy.deepcopy(loss.state_dict())
    loss(*batch(1))  # without a step, nothing is
    torch.testing.assert_close(loss.state_dict(), before)
    loss.after_step(1)
    assert loss.filled == 6
    loss.after_step(2)  # a step without a batch
    loss.eval()
    loss(*batch(2))
    loss.after_step(3)
    assert loss.filled == 6 and not loss.memory.requires_grad
    assert loss.observe_state()["memory_filled"] == 6


def test_a_sample_that_is_nobodys_partner_is_not_remembered():
    loss, past = make(size=7), []
    for number in range(1, 6):
        z, y = batch(number)
        used = torch.rand(6, generator=torch.Generator().manual_seed(number)) < 0.6
        own = torch.tensor([3, 1, 2, 0, 5, 4])  # the reference stands in another order
        found = loss(z, y, Ref(z[own], y[own], own, used[own]))
        partners = [(z[i], y[i]) if used[i] else (z[i] + 9, torch.tensor(99)) for i in range(6)]  # too far to be pushed
        expected = []
        for i in range(6):
            others = [partners[j] for j in range(6) if j != i] + past[-7:]
            expected.append(by_hand(z[i : i + 1], y[i : i + 1], others)[0])
        torch.testing.assert_close(found, torch.stack(expected))
        loss.after_step(number)
        past += [(z[i], y[i]) for i in range(6) if used[i]]
        assert loss.filled == min(7, len(past)) and loss.next_row == len(past) % 7
        assert sorted(loss.memory[: loss.filled].tolist()) == sorted(v.tolist() for v, _ in past[-7:])
    loss(z, y, Ref(z, y, torch.full((6,), -1), torch.zeros(6, dtype=torch.bool)))  # stands nowhere
    loss.after_step(6)
    assert loss.next_row == (len(past) + 6) % 7


def test_remembering_begins_after_start():
    loss = make(size=15, start=2)
    for number, filled in ((1, 0), (2, 0), (3, 6)):
        step(loss, number)
        assert loss.filled == filled


COMPILED = """
import torch
from likewise.losses import CrossBatchMemory
loss, plain = CrossBatchMemory(dim=8, size=15), CrossBatchMemory(dim=8, size=15)
compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
y = torch.arange(6) // 2
for number in (1, 2, 3):
    z = torch.nn.functional.normalize(torch.randn(6, 8), dim=1)
    torch.testing.assert_close(compiled(z, y), plain(z, y))
    loss.after_step(number)
    plain.after_step(number)
assert loss.filled == 15
torch.testing.assert_close(loss.state_dict(), plain.state_dict())
"""


def test_compiled_training_remembers_too(bare):
    bare(exec, COMPILED, {})


def test_a_relevance_of_one_memory_does_not_reach_another():
    CrossBatchMemory(dim=4).with_relevance(GivenValues(torch.eye(3)))
    assert CrossBatchMemory(dim=4).loss.relevance is None


def test_it_is_what_its_inner_loss_is():
    loss = CrossBatchMemory(dim=4, loss=SupCon(temperature=0.2), size=7)
    assert loss.input == "unit" and loss.lr_factor == 1.0
    assert spec(loss) == "CrossBatchMemory(dim=4, loss=SupCon(temperature=0.2), size=7)"
    raw = build("CrossBatchMemory(loss=NPair())", Loss, dim=4)
    assert raw.input == raw.loss.input == "raw"
    margin = build("CrossBatchMemory(loss=Margin())", Loss, dim=4, classes=3)
    assert margin.lr_factor == margin.loss.lr_factor != 1.0


def test_bad_arguments():
    for inner in (NormSoftmax(3, 8), CrossBatchMemory(8, MultiSimilarity())):
        with pytest.raises(LikewiseError, match=f"compare samples with samples, .*got {type(inner).__name__}"):
            CrossBatchMemory(8, inner)
    with pytest.raises(LikewiseError, match="dim=8 columns, got 4 columns"):
        CrossBatchMemory(8, Contrastive())(*batch(1, dim=4))
