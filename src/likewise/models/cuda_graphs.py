"""Execution modes of the network on a GPU: eager, captured as a CUDA graph, or compiled and captured."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from likewise.core.types import Output
from likewise.models.grad_cache import generators, preserved_state

Mode = Literal["eager", "graph", "compile"]

MODE_NAMES: tuple[Mode, ...] = ("eager", "graph", "compile")
"""Execution modes in the order in which they are tried."""

MAX_COMPILE_SECONDS = 60.0
"""Assumed duration of compiling a network."""

MAX_COMPILE_GAIN = 0.3
"""Share of a step that compiling may save. Higher than usual, so that long trainings do try it."""


class Captured(nn.Module):
    """An embedder whose forward and backward pass are each replayed as one CUDA graph, without launching single kernels.

    The same kernels run in the same order, so results are identical. The graphs are valid for batches of one shape, in training
    mode, and for the parameters that required a gradient at capture; for other batches, and in evaluation mode, the embedder
    itself is called. `torch.cuda.make_graphed_callables` is not used: it passes every parameter through autograd at each call,
    which takes longer than a small network.

    Args:
        embedder: network on a GPU. It is not changed, and shares its parameters.
        x: an example batch, of the shape of the batches to come.
        bf16: run in bfloat16 autocast.
        compiled: compile before capturing.
    """

    def __init__(self, embedder: nn.Module, x: Shaped[Tensor, "B ..."], bf16: bool, compiled: bool = False):
        super().__init__()
        self.embedder = embedder
        self.learning = [p for p in embedder.parameters() if p.requires_grad]
        self.x, self.root = x.clone(), torch.zeros((), device=x.device, requires_grad=True)
        work = _Fields(embedder)
        self.graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        changed = generators(x.device), list(embedder.buffers())  # by the trial runs
        with (
            preserved_state(*changed),
            torch.autocast(x.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False),
        ):
            with torch.no_grad():
                out = embedder(x[:2])
            self.fields = work.fields = tuple(name for name in Output._fields if getattr(out, name) is not None)
            work = torch.compile(work, dynamic=False) if compiled else work
            self.outs, self.slopes, self.grads = self._capture(work)

    def _capture(self, work: Callable[..., Any]) -> tuple[tuple[Tensor, ...], list[Tensor], tuple[Tensor | None, ...]]:
        """Capture both passes. Return the tensors of the outputs, of the gradients by outputs, and of those by parameters."""

        def both_ways() -> None:
            outs = work(self.x)
            self._slopes(outs, [torch.ones_like(t) for t in outs])

        warm_up(both_ways)
        # Threads that read images may allocate memory during the capture, which fails in the default error mode.
        options = {"pool": torch.cuda.graph_pool_handle(), "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self.graphs[0], **options):
            outs = work(self.x)
        slopes = [torch.zeros_like(t) for t in outs]
        with torch.cuda.graph(self.graphs[1], **options):
            return outs, slopes, self._slopes(outs, slopes)

    def _slopes(self, outs: tuple[Tensor, ...], slopes: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Return the gradients by the parameters, given the gradients by the outputs (`slopes`)."""
        moving = [(t, slope) for t, slope in zip(outs, slopes, strict=True) if t.requires_grad]
        if not moving or not self.learning:
            return ()
        ends, starts = zip(*moving, strict=True)
        return torch.autograd.grad(ends, self.learning, starts, allow_unused=True)

    def forward(self, x: Shaped[Tensor, "B ..."]) -> Output:
        if (x.shape, x.dtype) != (self.x.shape, self.x.dtype) or not self.embedder.training:
            return self.embedder(x)
        fields = dict(zip(self.fields, _Replay.apply(self.root, x, self), strict=True))
        return Output(**{name: fields.get(name) for name in Output._fields})  # pyright: ignore[reportArgumentType]

    def collect(self) -> None:
        """Add the captured gradients to the `grad` of the parameters."""
        for p, grad in zip(self.learning, self.grads, strict=False):
            if grad is not None:
                p.grad = grad if p.grad is None else p.grad + grad

    def keep_apart(self) -> None:
        """Copy gradients of an earlier backward pass that are still in use, because a replay overwrites their memory."""
        for p, grad in zip(self.learning, self.grads, strict=False):
            if grad is not None and p.grad is grad:
                p.grad = grad.clone()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, root: Tensor, x: Tensor, captured: Captured) -> tuple[Tensor, ...]:
        ctx.captured = captured
        captured.keep_apart()
        captured.x.copy_(x)
        captured.graphs[0].replay()
        return tuple(t.detach().clone() for t in captured.outs)  # the next replay overwrites them

    @staticmethod
    @once_differentiable
    def backward(ctx, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        captured = ctx.captured
        torch._foreach_copy_(captured.slopes, list(slopes))
        captured.graphs[1].replay()
        captured.collect()
        return None, None, None


class _Fields(nn.Module):
    """The embedder with its outputs as a tuple without None, because graphs handle tensors only."""

    def __init__(self, embedder: nn.Module):
        super().__init__()
        self.embedder = embedder
        self.fields: tuple[str, ...] = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        out = self.embedder(x)
        return tuple(getattr(out, name) for name in self.fields)


class GraphedInference:
    """An embedder in evaluation mode whose forward pass is replayed as one CUDA graph if possible.

    The first batch is captured. Batches of another shape, and networks that cannot be captured, run in eager mode. The next call
    overwrites the returned tensors, so the caller must copy them first.
    """

    def __init__(self, embedder: nn.Module):
        self.embedder, self.graph = embedder, torch.cuda.CUDAGraph()
        self.x: Tensor | None = None
        self.out: Output | None = None

    @torch.no_grad()
    def __call__(self, x: Shaped[Tensor, "B ..."]) -> Output:
        if self.x is None:
            self._capture(x)
        if self.out is None or self.x is None or x.shape != self.x.shape:
            return self.embedder(x)
        self.x.copy_(x)
        self.graph.replay()
        return self.out

    def _capture(self, x: Tensor) -> None:
        self.x = x.clone()
        try:
            warm_up(lambda: self.embedder(self.x))
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                out = self.embedder(self.x)
            self.out = out
        except RuntimeError:  # the network needs a device sync, so that it cannot be captured
            torch.cuda.synchronize()


def warm_up(work: Callable[[], object]) -> None:
    """Run `work` three times, so that a capture contains no loading, autotuning or compiling.

    The last run raises at a device sync: a sync inside of a capture would fail and leave torch in an invalid state.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warning that this mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(aside)


@dataclass
class ModeTuner:
    """Chooses the execution mode of the network of a training by measuring.

    Call `renew` when other parameters become trainable.

    Args:
        wish: a mode, or "auto": the fastest mode among those worth trying.
        steps: remaining steps of the training.
        known: mode that this training used before it was resumed; with "auto", it is used again.
    """

    embedder: nn.Module
    wish: Literal["auto"] | Mode
    steps: int
    known: Mode | None = None
    tried: dict[Mode, float] = field(default_factory=dict)  # mode -> milliseconds per step
    made: nn.Module | None = None  # the network in the chosen mode

    def network(self, x: Shaped[Tensor, "B ..."], bf16: bool) -> nn.Module:
        """Return the network in the chosen mode, for batches of this shape."""
        if self.made is None:
            self.made = self._choose(x, bf16)
        return self.made

    def renew(self) -> None:
        """Choose again at the next call, because other parameters are trainable now."""
        self.made, self.tried = None, {}
        self.known = self.first

    def __post_init__(self):
        self.first: Mode | None = self.known

    def _choose(self, x: Tensor, bf16: bool) -> nn.Module:
        if not x.is_cuda:
            return torch.compile(self.embedder) if self.wish == "compile" else self.embedder  # pyright: ignore[reportReturnType]
        wish = self.known or "auto" if self.wish == "auto" else self.wish
        if wish != "auto":
            try:
                self.known = wish
                return self._make(wish, x, bf16)
            except RuntimeError:
                if self.wish != "auto":
                    raise
                self.known = "eager"  # the mode worked on another machine but fails on this one
                return self.embedder
        return self._measure(x, bf16)

    def _measure(self, x: Tensor, bf16: bool) -> nn.Module:
        """Measure the modes that are worth trying, and return the fastest network."""
        networks = {}
        for mode in MODE_NAMES:
            if mode == "compile" and not self._may_compile(min(self.tried.values())):
                break
            try:
                networks[mode] = self._make(mode, x, bf16)
                self.tried[mode] = milliseconds(networks[mode], x, bf16)
            except RuntimeError:  # it needs a device sync, or the compiler does not support it
                if mode == "eager":
                    raise
                self.tried[mode] = math.inf
        self.known = min(self.tried, key=self.tried.__getitem__)
        return networks[self.known]

    def _may_compile(self, ms: float) -> bool:
        """Return whether compiling can save more time than it takes, in a training with this many milliseconds per step."""
        return ms / 1000 * self.steps * MAX_COMPILE_GAIN >= MAX_COMPILE_SECONDS

    def _make(self, mode: Mode, x: Tensor, bf16: bool) -> nn.Module:
        return self.embedder if mode == "eager" else Captured(self.embedder, x, bf16, compiled=mode == "compile")


def milliseconds(network: nn.Module | Captured, x: Tensor, bf16: bool, rounds: int = 8) -> float:
    """Return the mean duration of a forward and backward pass on this batch, in milliseconds."""
    with preserved_state(generators(x.device), list(network.buffers())):
        for number in range(3 + rounds):
            if number == 3:
                torch.cuda.synchronize(x.device)
                began = time.perf_counter()
            with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
                out = network(x)
            out.z.sum().backward()
            network.zero_grad(set_to_none=True)
        torch.cuda.synchronize(x.device)
        return (time.perf_counter() - began) / rounds * 1000
