"""Contract checks for parts, yours and ours: `check_loss(make)` raises AssertionError naming what a part breaks.

    from likewise.testing import check_loss
    check_loss(lambda: MyLoss(margin=0.3))

`make` builds a fresh part each time. Losses with classes are built for `CLASSES` classes and `DIM` dimensions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from likewise.contracts import BatchSampler, Loss, Metric, Miner, NoiseModel
from likewise.search import rank
from likewise.similarity import compare
from likewise.spec import build, spec
from likewise.types import Pairs, Ref, Tuples

CLASSES, DIM = 5, 8


def check_loss(make: Callable[[], Loss]) -> None:
    """One finite number per sample, sound gradients everywhere, no side effects, and a spec and state that come back."""
    for check in (
        _one_number_each, _gradient_where_samples_coincide, _gradient_on_a_proxy, _order_does_not_matter,
        _nothing_to_learn, _leaves_inputs_alone, _sixteen_bit, _spec_and_state, _batch_as_reference, _large_labels,
    ):  # fmt: skip
        check(make)


def check_miner(make: Callable[[], Miner]) -> None:
    """Only real pairs, one shape, no gradient, the same draws from the same seed."""
    z, y = _batch()
    sim, pairs = compare(z.requires_grad_(), y)

    def mine():
        torch.manual_seed(3)
        return make()(sim, pairs, DIM, 0.2)

    first, second = mine(), mine()
    assert isinstance(first, Pairs | Tuples), f"a miner gives Pairs or Tuples, got {type(first).__name__}"
    if isinstance(first, Pairs):
        assert not (first.pos & ~pairs.pos).any(), "a mined positive is no positive"
        assert not (first.neg & ~pairs.neg).any(), "a mined negative is no negative"
        assert torch.equal(first.pos, second.pos) and torch.equal(first.neg, second.neg), "same seed, other pairs"
        return
    t = first
    assert len({len(v) for v in (t.a, t.p, t.n, t.valid, t.pull)}) == 1, "tuple fields differ in length"
    ok = t.valid
    assert pairs.pos[t.a[ok], t.p[ok]].logical_or(~t.pull[ok]).all(), "a mined positive is no positive"
    assert pairs.neg[t.a[ok], t.n[ok]].logical_or(~t.pull[ok]).all(), "a mined negative is no negative"
    assert ok.any(), "a batch with pairs gave no valid tuple"
    for name in ("a", "p", "n", "valid", "pull"):
        assert torch.equal(getattr(first, name), getattr(second, name)), f"same seed, other {name}"
    lonely = make()(sim, Pairs(torch.zeros_like(pairs.pos), pairs.neg), DIM, 0.2)
    assert not lonely.valid.any(), "an anchor without positives must not be valid"


def check_sampler(make: Callable[[np.ndarray, int], BatchSampler], batch: int) -> None:
    """Seeded, the right sizes, rows that exist, and exact continuation from any step. `make(labels, seed)` builds one."""
    labels = np.repeat(np.arange(6), [4, 5, 6, 7, 8, 9])
    sampler = make(labels, 1)
    steps = 2 * len(sampler) + 1
    stream = _take(sampler, steps)
    assert all(len(b) == batch for b in stream), "a batch has the wrong size"
    assert {r for b in stream for r in b} <= set(range(len(labels))), "a row does not exist"
    assert len(sampler.one_pass(0)) == len(sampler), "a pass has not len(sampler) batches"
    assert _take(make(labels, 1), steps) == stream, "the same seed gave other batches"
    assert _take(make(labels, 2), steps) != stream, "another seed gave the same batches"
    first, late = make(labels, 1), make(labels, 1)
    first.after_step(len(sampler))
    late.load_state_dict(first.state_dict())
    assert _take(late, len(sampler) + 1) == stream[len(sampler) :], "a restored sampler goes on elsewhere"


def check_noise(make: Callable[[float], NoiseModel], share: float = 0.3) -> None:
    """The wanted share of labels changes, never to themselves, from a seed, and the input stays as it is."""
    y = np.random.default_rng(0).integers(0, 10, 2000) * 7 + 3
    kept = y.copy()
    noisy = make(share)(y, np.random.default_rng(1))
    assert np.array_equal(y, kept), "the labels passed in were changed"
    assert noisy.shape == y.shape and noisy.dtype == y.dtype, "shape or type changed"
    assert set(noisy) <= set(y), "a label that no class has"
    wrong = (noisy != y).mean()
    room = 4 * (share * (1 - share) / len(y)) ** 0.5
    assert abs(wrong - share) <= room, f"{wrong:.3f} of the labels are wrong, {share} were asked for"
    assert np.array_equal(noisy, make(share)(y, np.random.default_rng(1))), "same seed, other labels"
    assert np.array_equal(make(0.0)(y, np.random.default_rng(1)), y), "share=0 changed labels"


def check_metric(metric: Metric) -> None:
    """NaN where there is nothing to find, 1 on a perfect ranking, within [0, 1], whatever the order of the gallery."""
    y = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    z = F.one_hot(y, 4).double()
    perfect = metric(rank(z, y, k=1))
    assert perfect[-1].isnan(), "a query with nothing to find must be NaN"
    assert (perfect[:-1] == 1).all(), "a perfect ranking must score 1"
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (40,), generator=g)
    z = torch.randn(40, 6, generator=g)
    value = metric(rank(z, y, k=5))
    assert ((value >= 0) & (value <= 1)).all(), "a value outside [0, 1]"
    order = torch.randperm(40, generator=g)
    gallery = metric(rank(z, y, z[order], y[order], k=5, own=order.argsort()))
    assert torch.allclose(gallery, value), "the order of the gallery changed the value"


def _batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4])
    return F.normalize(torch.randn(len(y), DIM, generator=g, dtype=torch.float64), dim=1).to(dtype), y


def _value(loss: Loss, z: Tensor, y: Tensor, ref: Ref | None = None) -> Tensor:
    torch.manual_seed(7)  # miners draw from torch's generator
    return loss(z, y, ref)


def _fresh(make: Callable[[], Loss]) -> Loss:
    torch.manual_seed(5)
    return make()


def _one_number_each(make) -> None:
    for size in (12, 2, 1):
        z, y = (t[:size] for t in _batch())
        each = _value(_fresh(make).double(), z, y)
        assert each.shape == (size,), f"{size} samples must give {size} numbers, got shape {tuple(each.shape)}"
        assert torch.isfinite(each).all(), f"not finite for a batch of {size}"


def _check_gradient(loss: Loss, z: Tensor, y: Tensor, where: str) -> None:
    z = z.clone().requires_grad_()
    _value(loss, z, y).mean().backward()
    assert z.grad is not None and torch.isfinite(z.grad).all(), f"gradient not finite {where}"
    for name, p in loss.named_parameters():
        assert p.grad is None or torch.isfinite(p.grad).all(), f"gradient of {name} not finite {where}"


def _gradient_where_samples_coincide(make) -> None:
    for dtype in (torch.float32, torch.float64):
        z, y = _batch(dtype)
        twins = z[[0, 0, 0, 3, 3, 5, 6, 7, 0, 9, 10, 10]]
        _check_gradient(_fresh(make).to(dtype), twins, y, "where samples coincide")
        _check_gradient(_fresh(make).to(dtype), z[:1].expand(12, -1), y, "where all samples coincide")
        _check_gradient(_fresh(make).to(dtype), torch.cat([z[:6], -z[:6]]), y, "for antipodal samples")


def _gradient_on_a_proxy(make) -> None:
    loss = _fresh(make)
    for p in loss.parameters():
        if p.dim() == 2 and p.shape[1] == DIM:
            _check_gradient(loss, F.normalize(p.detach(), dim=1)[:CLASSES], torch.arange(CLASSES), "on the proxies")


def _order_does_not_matter(make) -> None:
    z, y = _batch()
    loss = _fresh(make).double()
    first, second = _value(loss, z, y), _value(loss, z, y)
    torch.manual_seed(8)
    if not torch.equal(first, second) or not torch.equal(first, loss(z, y)):
        return  # a drawing miner: the order of draws is part of the result
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(_value(loss, z[order], y[order]), first[order]), "the order of samples matters"


def _nothing_to_learn(make) -> None:
    """One class, or no class mates: finite, with a graph that gives finite gradients."""
    z, _ = _batch()
    for y, what in (
        (torch.zeros(12, dtype=torch.int64), "with one class"),
        (torch.arange(CLASSES), "without class mates"),
    ):
        _check_gradient(_fresh(make).double(), z[: len(y)], y, what)


def _leaves_inputs_alone(make) -> None:
    z, y = _batch(torch.float32)
    before, labels = z.clone(), y.clone()
    loss = _fresh(make)
    dtypes = {k: v.dtype for k, v in loss.state_dict().items()}
    _value(loss, z, y)
    assert torch.equal(z, before) and torch.equal(y, labels), "inputs were changed"
    assert {k: v.dtype for k, v in loss.state_dict().items()} == dtypes, "parameters changed their type"


def _sixteen_bit(make) -> None:
    z, y = _batch(torch.float32)
    loss = _fresh(make)
    with torch.autocast("cpu", torch.bfloat16):
        each = _value(loss, z.bfloat16(), y)
    assert each.dtype == torch.float32 and torch.isfinite(each).all(), "under bfloat16 autocast: not finite float32"


def _spec_and_state(make) -> None:
    loss = _fresh(make)
    text = spec(loss)
    again = build(text, Loss, allow_imports=True)
    assert spec(again) == text, f"the spec does not come back: {text} became {spec(again)}"
    again.load_state_dict(loss.state_dict())
    z, y = _batch(torch.float32)
    assert torch.equal(_value(again, z, y), _value(copy.deepcopy(loss), z, y)), "a loss restored from its state differs"


def _batch_as_reference(make) -> None:
    z, y = _batch()
    loss = _fresh(make).double()
    own = Ref(z, y, torch.arange(len(y)))
    assert torch.allclose(_value(loss, z, y, own), _value(loss, z, y)), "the batch as reference gives another result"


def _large_labels(make) -> None:
    """Labels are integers: 2^24 and 2^24 + 1 are two classes. (Losses with one proxy per class take 0..C-1.)"""
    loss = _fresh(make).double()
    if any(p.dim() == 2 for p in loss.parameters()):
        return
    z, y = _batch()
    assert torch.equal(_value(loss, z, y + 2**24), _value(loss, z, y)), "labels above 2^24 are confused"


def _take(sampler: BatchSampler, count: int) -> list[list[int]]:
    stream = iter(sampler)
    return [next(stream) for _ in range(count)]
