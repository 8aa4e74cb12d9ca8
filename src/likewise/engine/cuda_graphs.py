"""The network of a training step as fast as a GPU runs it: as it is, captured as a CUDA graph, or compiled and captured."""

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

from likewise.engine.grad_cache import generators, preserved_state
from likewise.types import Output

Mode = Literal["eager", "graph", "compile"]

MAX_COMPILE_SECONDS = 60.0
"""Seconds that compiling may take; a training must be able to win them back."""

MAX_COMPILE_GAIN = 0.2
"""The share of a step that compiling may save; more than it mostly does, so that long trainings try it."""


class Captured(nn.Module):
    """An embedder whose forward and backward pass are each replayed as one CUDA graph: nothing is launched piece by piece.

    The same kernels in the same order, so the same numbers. It holds for pictures of one shape, in training mode, with the
    parameters that learned when it was made; for other pictures, and in evaluation, the embedder itself is called.
    By hand, since torch's own hands every parameter through autograd at each call, which takes longer than a small network.

    Args:
        embedder: on a GPU. It stays as it is and shares its parameters.
        x: a batch as those to come.
        bf16: its arithmetic.
        compiled: compile before capturing.
    """

    def __init__(self, embedder: nn.Module, x: Shaped[Tensor, "B ..."], bf16: bool, compiled: bool = False):
        super().__init__()
        self.embedder = embedder
        self.learning = [p for p in embedder.parameters() if p.requires_grad]
        self.x, self.root = x.clone(), torch.zeros((), device=x.device, requires_grad=True)
        work = _Fields(embedder)
        self.graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        moved = generators(x.device), list(embedder.buffers())  # by trying
        with preserved_state(*moved), torch.autocast(x.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            with torch.no_grad():
                out = embedder(x[:2])
            self.fields = work.fields = tuple(name for name in Output._fields if getattr(out, name) is not None)
            work = torch.compile(work, dynamic=False) if compiled else work
            self.outs, self.slopes, self.grads = self._capture(work)

    def _capture(self, work: Callable[..., Any]) -> tuple[tuple[Tensor, ...], list[Tensor], tuple[Tensor | None, ...]]:
        """Capture both passes. Returns the tensors that hold outputs, the gradients of outputs, and those of parameters."""

        def both_ways() -> None:
            outs = work(self.x)
            self._slopes(outs, [torch.ones_like(t) for t in outs])

        warm_up(both_ways)
        # Threads that read pictures may allocate memory meanwhile; by default that breaks a capture.
        how = {"pool": torch.cuda.graph_pool_handle(), "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self.graphs[0], **how):
            outs = work(self.x)
        slopes = [torch.zeros_like(t) for t in outs]
        with torch.cuda.graph(self.graphs[1], **how):
            return outs, slopes, self._slopes(outs, slopes)

    def _slopes(self, outs: tuple[Tensor, ...], slopes: list[Tensor]) -> tuple[Tensor | None, ...]:
        moving = [(t, slope) for t, slope in zip(outs, slopes, strict=True) if t.requires_grad]
        if not moving or not self.learning:
            return ()
        ends, starts = zip(*moving, strict=True)
        return torch.autograd.grad(ends, self.learning, starts, allow_unused=True)

    def forward(self, x: Shaped[Tensor, "B ..."]) -> Output:
        if (x.shape, x.dtype) != (self.x.shape, self.x.dtype) or not self.embedder.training:
            return self.embedder(x)
        found = dict(zip(self.fields, _Replay.apply(self.root, x, self), strict=True))
        return Output(**{name: found.get(name) for name in Output._fields})  # pyright: ignore[reportArgumentType]

    def collect(self) -> None:
        """Gradients of the parameters, added to those there are."""
        for p, grad in zip(self.learning, self.grads, strict=False):
            if grad is not None:
                p.grad = grad if p.grad is None else p.grad + grad

    def keep_apart(self) -> None:
        """Gradients of an earlier backward pass lie where both graphs write, unless they were dropped."""
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
        return tuple(t.detach().clone() for t in captured.outs)  # the next replay writes over them

    @staticmethod
    @once_differentiable
    def backward(ctx, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        captured = ctx.captured
        torch._foreach_copy_(captured.slopes, list(slopes))
        captured.graphs[1].replay()
        captured.collect()
        return None, None, None


class _Fields(nn.Module):
    """What the embedder gives, without what is not there: graphs know tensors only."""

    def __init__(self, embedder: nn.Module):
        super().__init__()
        self.embedder = embedder
        self.fields: tuple[str, ...] = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        out = self.embedder(x)
        return tuple(getattr(out, name) for name in self.fields)


class Looking:
    """An embedder in evaluation, whose forward pass is replayed as one CUDA graph where that is possible.

    It is captured with the first batch; what has another shape, or cannot be captured, goes through the embedder itself. What
    comes out is to be copied before the next call, which writes over it.
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
        except RuntimeError:  # it looks at values on the way
            torch.cuda.synchronize()


def warm_up(work: Callable[[], object]) -> None:
    """What is loaded, chosen or compiled at first is not to be captured. The last round must not wait for the device, for a
    capture in which something waits fails and leaves torch in disorder."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(aside)


@dataclass
class Fast:
    """Chooses how the network of a training runs, by trying. Who lets other parameters learn calls `renew`.

    Args:
        wish: one of the ways, or "auto": the fastest of those that are worth trying.
        steps: how many are to come.
        known: the way an earlier part of this training went, which it keeps unless another is wished.
    """

    embedder: nn.Module
    wish: Literal["auto"] | Mode
    steps: int
    known: Mode | None = None
    tried: dict[Mode, float] = field(default_factory=dict)  # milliseconds a step, by the way
    made: nn.Module | None = None

    def network(self, x: Shaped[Tensor, "B ..."], bf16: bool) -> nn.Module:
        """What to call for a batch like this."""
        if self.made is None:
            self.made = self._choose(x, bf16)
        return self.made

    def renew(self) -> None:
        """Other parameters learn from here on."""
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
                self.known = "eager"  # what went elsewhere does not go here
                return self.embedder
        networks = {}
        for mode in ("eager", "graph", "compile"):
            if mode == "compile" and min(self.tried.values()) / 1000 * self.steps * MAX_COMPILE_GAIN < MAX_COMPILE_SECONDS:
                break
            try:
                networks[mode] = self._make(mode, x, bf16)
                self.tried[mode] = milliseconds(networks[mode], x, bf16)
            except RuntimeError:  # it looks at values on the way, or does what the compiler does not know
                if mode == "eager":
                    raise
                self.tried[mode] = math.inf
        self.known = min(self.tried, key=self.tried.__getitem__)
        return networks[self.known]

    def _make(self, mode: Mode, x: Tensor, bf16: bool) -> nn.Module:
        return self.embedder if mode == "eager" else Captured(self.embedder, x, bf16, compiled=mode == "compile")


def milliseconds(network: nn.Module | Captured, x: Tensor, bf16: bool, rounds: int = 8) -> float:
    """Of a forward and backward pass on this batch."""
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
