"""What every confidence must keep."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise.config.spec import ARRAYS, build, spec
from likewise.contracts import Confidence
from likewise.testing.loss import CLASSES, batch
from likewise.types import Embedded, PeerView, Relabelling, SampleWeights

LABELS = batch()[1].numpy()
"""Classes of the twelve training samples that confidences and terms are checked with."""


def check_confidence(make: Callable[[], Confidence]) -> None:
    """Sound weights for every batch, no gradient, no side effects, verdicts on real classes, and a spec and state that come
    back. It is built for `CLASSES` classes, `DIM` dimensions and training samples of classes `LABELS`."""
    for check in (
        _sound_weights, _leaves_inputs_alone, _no_gradient, _order_does_not_matter, _sixteen_bit, _verdict_is_sound,
        _spec_and_state, _waits_for_nothing,
    ):  # fmt: skip
        check(make)


def _judge(part: Confidence, z: Tensor, y: Tensor, row: Tensor, each: Tensor) -> list[SampleWeights]:
    """As the objective asks: one network or several, whose views depend on the sample alone."""
    if part.peers == 1:
        return [part(z, y, row, each if part.needs_loss else None)]
    views = [z.roll(number, 1) for number in range(part.peers)]
    return part.exchange([PeerView(v, each + v[:, 0], v[:, :CLASSES].argmax(1)) for v in views], y, row)


def _samples(size: int = 12) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z, y, row and the losses of so many samples; two losses stand out."""
    z, y = (t[:size] for t in batch(torch.float32))
    each = torch.linspace(0.5, 1.5, 12).roll(5)
    each[[1, 6]] = torch.tensor([5.0, 6.0])
    return z, y, torch.arange(12)[:size], each[:size]


def _begun(make: Callable[[], Confidence], seed: int = 5, steps: int = 3) -> Confidence:
    """One that has seen some steps."""
    torch.manual_seed(seed)
    part = make()
    _go_on(part, 0, steps)
    return part


def _go_on(part: Confidence, first: int, steps: int) -> list[SampleWeights]:
    found = []
    for step in range(first, first + steps):
        z, y, row, each = _samples()
        order = torch.randperm(12, generator=torch.Generator().manual_seed(step))[:8]
        found += _judge(part, z[order], y[order], row[order], each[order])
        part.after_step(step + 1)
    return found


def _sound_weights(make) -> None:
    z, y, row, each = _samples()
    cases = {f"for a batch of {size}": _samples(size) for size in (12, 3, 2, 1)}
    cases["where all samples are one"] = (z[:1].repeat(12, 1), y, row, each[:1].repeat(12))
    cases["where a loss is not finite"] = (z, y, row, each.index_fill(0, torch.tensor([3]), torch.nan))
    for what, sample in cases.items():
        for steps in (0, 3):
            for trust in _judge(_begun(make, steps=steps), *sample):
                _must_be_sound(trust, len(sample[1]), what)


def _must_be_sound(trust: SampleWeights, size: int, what: str) -> None:
    assert isinstance(trust, SampleWeights), f"a confidence gives Trust, got {type(trust).__name__}"
    assert trust.w.shape == (size,), f"{what}: {size} samples must give {size} weights, got {tuple(trust.w.shape)}"
    assert torch.isfinite(trust.w).all() and (trust.w >= 0).all(), f"{what}: a weight is not finite, or below 0"
    for name in ("partner", "suspicion"):
        value = getattr(trust, name)
        assert value is None or value.shape == (size,), f"{what}: {name} must be one a sample"
    assert trust.partner is None or trust.partner.dtype == torch.bool, "partner must be a mask"
    assert trust.threshold is None or trust.threshold.shape == (), "threshold must be one number"
    assert trust.mean_over in ("batch", "kept"), f"mean_over is 'batch' or 'kept', got '{trust.mean_over}'"


def _no_gradient(make) -> None:
    z, y, row, each = _samples()
    for trust in _judge(_begun(make), z.requires_grad_(), y, row, each.requires_grad_()):
        for t in (trust.w, trust.suspicion, trust.threshold):
            assert t is None or not t.requires_grad, "a gradient flows through the weights"


def _leaves_inputs_alone(make) -> None:
    part, given = _begun(make), _samples()
    kinds = {k: v.dtype for k, v in part.state_dict().items()}
    _judge(part, *given)
    part.after_step(4)
    assert all(torch.equal(a, b) for a, b in zip(given, _samples(), strict=True)), "inputs were changed"
    assert {k: v.dtype for k, v in part.state_dict().items()} == kinds, "the state changed its type"


def _order_does_not_matter(make) -> None:
    given, part = _samples(), _begun(make)
    first, second = _judge(part, *given), _judge(part, *given)
    assert all(torch.equal(a.w, b.w) for a, b in zip(first, second, strict=True)), "asked twice, it answers differently"
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    for a, b in zip(first, _judge(part, *(t[order] for t in given)), strict=True):
        assert torch.allclose(a.w[order], b.w, atol=1e-5), "the order of samples matters"


def _sixteen_bit(make) -> None:
    z, y, row, each = _samples()
    part = _begun(make)
    with torch.autocast("cpu", torch.bfloat16):
        found = _judge(part, z.bfloat16(), y, row, each)
        part.after_step(4)
    for trust in found:
        assert trust.w.dtype == torch.float32, f"under bfloat16 autocast: weights must be float32, got {trust.w.dtype}"
        _must_be_sound(trust, 12, "under bfloat16 autocast")
    for name, value in part.state_dict().items():
        assert not value.is_floating_point() or value.dtype != torch.bfloat16, f"{name} became bfloat16"


def _embedded() -> Embedded:
    z, y = batch(torch.float32)
    return Embedded(z, y, torch.arange(12), f=z.roll(1, 1) * 3)


def _verdict_is_sound(make) -> None:
    part = _begun(make)
    if part.every is None:
        return
    e = _embedded()
    verdict, again = part.relabel(e), part.relabel(_embedded())
    if verdict is None:
        return
    assert isinstance(verdict, Relabelling), f"a look at all gives a Verdict or None, got {type(verdict).__name__}"
    assert verdict.y.shape == verdict.w.shape == (12,), (
        "a verdict has one label and one weight for each training sample"
    )
    assert verdict.y.min() >= 0 and verdict.y.max() < CLASSES, "a verdict names a class that is not there"
    assert torch.isfinite(verdict.w).all() and (verdict.w >= 0).all(), "a verdict's weight is not finite, or below 0"
    same = again is not None and torch.equal(verdict.y, again.y) and torch.equal(verdict.w, again.w)
    assert same, "asked twice, the verdict differs"
    assert all(torch.equal(getattr(e, k), getattr(_embedded(), k)) for k in ("z", "y", "f")), "inputs were changed"


def built_again(part: nn.Module, want: type) -> Any:
    """Built a second time from its spec; what is no text is taken from the first."""
    text = spec(part)
    arrays = {name: getattr(part, name) for name in ARRAYS if hasattr(part, name)}
    again = build(text, want, allow_imports=True, **arrays)
    assert spec(again) == text, f"the spec does not come back: {text} became {spec(again)}"
    return again


def stored(part: nn.Module) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(part.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _spec_and_state(make) -> None:
    part = _begun(make)
    if part.every is not None:
        part.relabel(_embedded())
    torch.manual_seed(6)  # other draws: what is random must be in the state
    again = built_again(part, Confidence)
    again.load_state_dict(stored(part))
    for a, b in zip(_go_on(part, 3, 4), _go_on(again, 3, 4), strict=True):
        assert torch.equal(a.w, b.w), "restored from its state, it goes on differently"


def _waits_for_nothing(make) -> None:
    part = _begun(make).to("meta")
    try:
        _judge(part, *(t.to("meta") for t in _samples()))
        part.after_step(4)
    except (NotImplementedError, RuntimeError) as error:
        raise AssertionError(f"looks at values, so an accelerator must wait: {str(error).splitlines()[0]}") from None
