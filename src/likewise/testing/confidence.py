"""Contract checks for confidences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise.core.contracts import Confidence
from likewise.core.settings.spec import ARRAY_FACTS, build, spec
from likewise.core.types import Embedded, PeerView, Relabelling, SampleWeights
from likewise.testing.loss import CHECK_CLASSES, batch, no_device_sync, stored

CHECK_LABELS = batch()[1].numpy()
"""Labels of the twelve training samples in the checks of confidences and terms."""


def check_confidence(make: Callable[[], Confidence]) -> None:
    """Check a confidence: finite weights, no gradient, no side effects, relabelling to existing classes, exact spec and state.

    `make` builds it for `CLASSES` classes, `DIM` dimensions and the training labels `LABELS`.
    """
    for check in (
        _sound_weights, _leaves_inputs_alone, _no_gradient, _order_does_not_matter, _sixteen_bit, _relabelling_is_sound,
        _spec_and_state, _never_syncs,
    ):  # fmt: skip
        check(make)


def _weights_of(part: Confidence, z: Tensor, y: Tensor, row: Tensor, each: Tensor) -> list[SampleWeights]:
    """Return the sample weights for one network or several, called as the objective does."""
    if part.peers == 1:
        return [part(z, y, row, each if part.needs_loss else None)]
    views = [z.roll(number, 1) for number in range(part.peers)]
    return part.exchange([PeerView(v, each + v[:, 0], v[:, :CHECK_CLASSES].argmax(1)) for v in views], y, row)


def _samples(size: int = 12) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return z, y, row and the losses of `size` samples; two of the losses are outliers."""
    z, y = (t[:size] for t in batch(torch.float32))
    each = torch.linspace(0.5, 1.5, 12).roll(5)
    each[[1, 6]] = torch.tensor([5.0, 6.0])
    return z, y, torch.arange(12)[:size], each[:size]


def _after_some_steps(make: Callable[[], Confidence], seed: int = 5, steps: int = 3) -> Confidence:
    """Return a new confidence after some training steps."""
    torch.manual_seed(seed)
    part = make()
    _run_steps(part, 0, steps)
    return part


def _run_steps(part: Confidence, first: int, steps: int) -> list[SampleWeights]:
    found = []
    for step in range(first, first + steps):
        z, y, row, each = _samples()
        order = torch.randperm(12, generator=torch.Generator().manual_seed(step))[:8]
        found += _weights_of(part, z[order], y[order], row[order], each[order])
        part.after_step(step + 1)
    return found


def _sound_weights(make) -> None:
    z, y, row, each = _samples()
    cases = {f"for a batch of {size}": _samples(size) for size in (12, 3, 2, 1)}
    cases["where all samples are equal"] = (z[:1].repeat(12, 1), y, row, each[:1].repeat(12))
    cases["where a loss is not finite"] = (z, y, row, each.index_fill(0, torch.tensor([3]), torch.nan))
    for what, sample in cases.items():
        for steps in (0, 3):
            for weights in _weights_of(_after_some_steps(make, steps=steps), *sample):
                _must_be_sound(weights, len(sample[1]), what)


def _must_be_sound(weights: SampleWeights, size: int, what: str) -> None:
    assert isinstance(weights, SampleWeights), f"a confidence must return SampleWeights, got {type(weights).__name__}"
    assert weights.w.shape == (size,), f"{what}: {size} samples must give {size} weights, got {tuple(weights.w.shape)}"
    assert torch.isfinite(weights.w).all() and (weights.w >= 0).all(), f"{what}: a weight is not finite, or below 0"
    for name in ("partner", "suspicion"):
        value = getattr(weights, name)
        assert value is None or value.shape == (size,), f"{what}: {name} must have one value per sample"
    assert weights.partner is None or weights.partner.dtype == torch.bool, "partner must be a mask"
    assert weights.threshold is None or weights.threshold.shape == (), "threshold must be one number"
    assert weights.mean_over in ("batch", "kept"), f"mean_over is 'batch' or 'kept', got '{weights.mean_over}'"


def _no_gradient(make) -> None:
    z, y, row, each = _samples()
    for weights in _weights_of(_after_some_steps(make), z.requires_grad_(), y, row, each.requires_grad_()):
        for t in (weights.w, weights.suspicion, weights.threshold):
            assert t is None or not t.requires_grad, "a gradient flows through the weights"


def _leaves_inputs_alone(make) -> None:
    part, given = _after_some_steps(make), _samples()
    kinds = {k: v.dtype for k, v in part.state_dict().items()}
    _weights_of(part, *given)
    part.after_step(4)
    assert all(torch.equal(a, b) for a, b in zip(given, _samples(), strict=True)), "inputs were changed"
    assert {k: v.dtype for k, v in part.state_dict().items()} == kinds, "the state changed its type"


def _order_does_not_matter(make) -> None:
    given, part = _samples(), _after_some_steps(make)
    first, second = _weights_of(part, *given), _weights_of(part, *given)
    assert all(torch.equal(a.w, b.w) for a, b in zip(first, second, strict=True)), (
        "called twice, it returns different weights"
    )
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    for a, b in zip(first, _weights_of(part, *(t[order] for t in given)), strict=True):
        assert torch.allclose(a.w[order], b.w, atol=1e-5), "the order of samples matters"


def _sixteen_bit(make) -> None:
    z, y, row, each = _samples()
    part = _after_some_steps(make)
    with torch.autocast("cpu", torch.bfloat16):
        found = _weights_of(part, z.bfloat16(), y, row, each)
        part.after_step(4)
    for weights in found:
        assert weights.w.dtype == torch.float32, (
            f"under bfloat16 autocast: weights must be float32, got {weights.w.dtype}"
        )
        _must_be_sound(weights, 12, "under bfloat16 autocast")
    for name, value in part.state_dict().items():
        assert not value.is_floating_point() or value.dtype != torch.bfloat16, f"{name} became bfloat16"


def _embedded() -> Embedded:
    z, y = batch(torch.float32)
    return Embedded(z, y, torch.arange(12), f=z.roll(1, 1) * 3)


def _relabelling_is_sound(make) -> None:
    part = _after_some_steps(make)
    if part.every is None:
        return
    e = _embedded()
    relabelling, again = part.relabel(e), part.relabel(_embedded())
    if relabelling is None:
        return
    assert isinstance(relabelling, Relabelling), (
        f"relabel must return a Relabelling or None, got {type(relabelling).__name__}"
    )
    assert relabelling.y.shape == relabelling.w.shape == (12,), (
        "a relabelling must have one label and one weight for each training sample"
    )
    assert relabelling.y.min() >= 0 and relabelling.y.max() < CHECK_CLASSES, (
        "a relabelling has a label that is not among the classes"
    )
    assert torch.isfinite(relabelling.w).all() and (relabelling.w >= 0).all(), (
        "a weight of a relabelling is not finite, or below 0"
    )
    same = again is not None and torch.equal(relabelling.y, again.y) and torch.equal(relabelling.w, again.w)
    assert same, "called twice, the relabelling differs"
    assert all(torch.equal(getattr(e, k), getattr(_embedded(), k)) for k in ("z", "y", "f")), "inputs were changed"


def built_again(part: nn.Module, want: type) -> Any:
    """Return a component built from the spec of another; arguments that are arrays are copied from the other."""
    text = spec(part)
    arrays = {name: getattr(part, name) for name in ARRAY_FACTS if hasattr(part, name)}
    again = build(text, want, allow_imports=True, **arrays)
    assert spec(again) == text, f"the spec does not come back: {text} became {spec(again)}"
    return again


def _spec_and_state(make) -> None:
    part = _after_some_steps(make)
    if part.every is not None:
        part.relabel(_embedded())
    torch.manual_seed(6)  # another seed: random values must be in the state
    again = built_again(part, Confidence)
    again.load_state_dict(stored(part.state_dict()))
    for a, b in zip(_run_steps(part, 3, 4), _run_steps(again, 3, 4), strict=True):
        assert torch.equal(a.w, b.w), "restored from its state, it returns other weights"


def _never_syncs(make) -> None:
    part = _after_some_steps(make).to("meta")
    with no_device_sync():
        _weights_of(part, *(t.to("meta") for t in _samples()))
        part.after_step(4)
