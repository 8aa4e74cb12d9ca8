"""Losses that look at one row of the similarity matrix at a time, computed block by block with their gradient.

A pair loss is some twenty passes over a B x R matrix. Over the whole matrix each pass goes through main memory and leaves a
temporary for autograd; over a block of rows that fits the cache it is almost free. So the forward pass takes block after block,
lets autograd differentiate the block at once, and keeps one B x R matrix: the gradient by the similarities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.contracts import Miner
from likewise.similarity import (
    at_least_float32,
    batch_masks,
    cosine,
    full_precision,
    neg_squared,
    normalise_by_count,
    observed,
    reference_masks,
)
from likewise.types import Pairs, Ref, Tuples

CPU_BLOCK_SIZE = 2**17
"""Numbers in a block on the CPU: half a megabyte, which stays in a core's cache."""

ACCELERATOR_BLOCK_SIZE = 2**22
"""Numbers in a block on an accelerator: large enough to fill it, small enough to bound memory."""

MAX_RECORDED_SIZE = 2**24
"""Numbers of a matrix that an accelerator may keep some ten copies of."""

Rows = Callable[..., "Tensor | tuple[Tensor, Tensor]"]


def by_rows(
    rows: Rows,
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None = None,
    miner: Miner | None = None,
    margin: float | None = None,
    similarity: Callable[[Tensor, Tensor], Tensor] = cosine,
) -> Float[Tensor, "B"]:
    """Per-sample numbers of a loss whose number i depends on row i of the similarities alone.

    Args:
        rows: (sim, chosen) of some rows -> one number a row; or those and a count a row, and then the numbers are scaled so that
            their mean over the batch is their sum divided by the sum of the counts.
        miner: makes `chosen` out of the pairs; None: `chosen` is all pairs.
        margin: the loss's, for miners that look at it.
        similarity: `cosine` or `neg_squared`, whose gradients are known here.
    """
    job = _job(rows, y, ref, similarity, miner, margin)
    with full_precision(z):
        z = at_least_float32(z)
        other = z if ref is None else at_least_float32(ref.z)
        wanted = torch.is_grad_enabled() and (z.requires_grad or other.requires_grad)
        # With a small matrix an accelerator waits for the host, which is through with the plain way sooner.
        small = z.device.type != "cpu" and len(z) * len(other) <= MAX_RECORDED_SIZE
        if wanted and not small and not observed():
            each, count = _ByRows.apply(job, z, other)
        else:
            each, count = job.recorded(z, other)
    return each if count is None else normalise_by_count(each, count)


def triplets(
    z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None, miner: Miner, margin: float | None = None
) -> Tuples:
    """The miner's triplets of a batch, mined block by block and without a gradient."""
    job = _job(lambda *_: y, y, ref, cosine, miner, margin)
    with torch.no_grad(), full_precision(z):
        sim = cosine(at_least_float32(z), at_least_float32(z if ref is None else ref.z))
        found: list[tuple[int, Any]] = [(b.start, job.choose(sim[b], z.shape[1], b)) for b in job.blocks(sim)]
    if len(found) == 1:
        return found[0][1]
    fields = {name: torch.cat([getattr(t, name) for _, t in found]) for name in ("p", "n", "valid", "pull")}
    one_each = all(t.one_each for _, t in found)
    return Tuples(a=torch.cat([t.a + start for start, t in found]), **fields, one_each=one_each)


def blocks(sim: Float[Tensor, "B R"]) -> list[slice]:
    """Rows to take together; all of them where the compiler fuses passes, or an accelerator has room for the whole.

    Where autograd records, `cut` the matrix: on the way back a slice becomes a whole matrix of zeros.
    """
    size, columns = sim.shape
    small = sim.device.type != "cpu" and sim.numel() <= MAX_RECORDED_SIZE
    if torch.compiler.is_compiling() or small:
        return [slice(0, size)]
    step = max(1, (CPU_BLOCK_SIZE if sim.device.type == "cpu" else ACCELERATOR_BLOCK_SIZE) // columns)
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]


def split_rows(sim: Float[Tensor, "B R"], parts: list[slice]) -> tuple[Float[Tensor, "b R"], ...]:
    return sim.split([p.stop - p.start for p in parts])


class _Job(NamedTuple):
    rows: Rows
    y: Tensor
    ref_y: Tensor | None  # None: the batch itself
    own: Tensor | None
    used: Tensor | None
    live: int | None
    similarity: Callable[[Tensor, Tensor], Tensor]
    miner: Miner | None
    margin: float | None

    def blocks(self, sim: Tensor) -> list[slice]:
        return [slice(0, len(sim))] if self.miner and self.miner.whole else blocks(sim)

    def choose(self, sim: Tensor, dim: int, block: slice) -> Pairs | Tuples:
        if self.ref_y is None:
            pairs = batch_masks(self.y, block)
        else:
            pairs = reference_masks(self.y[block], self.ref_y, None if self.own is None else self.own[block], self.used)
        return self.miner(sim.detach(), pairs, dim, self.margin) if self.miner else pairs

    def one(self, sim: Tensor, dim: int, block: slice) -> tuple[Tensor, Tensor | None]:
        found = self.rows(sim, self.choose(sim, dim, block))
        return found if isinstance(found, tuple) else (found, None)

    def recorded(self, z: Tensor, other: Tensor) -> tuple[Tensor, Tensor | None]:
        """The plain way, for autograd to record."""
        sim = self.similarity(z, other)
        parts = self.blocks(sim)
        return _join([self.one(rows, z.shape[1], part) for rows, part in zip(split_rows(sim, parts), parts)])


def _job(rows: Rows, y: Tensor, ref: Ref | None, similarity, miner: Miner | None, margin: float | None) -> _Job:
    parts = (None, None, None, None) if ref is None else (ref.y, ref.own, ref.used, ref.live)
    return _Job(rows, y, *parts, similarity, miner, margin)


class _ByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, job: _Job, z: Tensor, other: Tensor):
        ctx.job, ctx.resamples = job, _rng_restorer(z.device)
        sim = job.similarity(z, other)
        found = []
        for block in job.blocks(sim):
            s = sim[block].detach().requires_grad_()
            with torch.enable_grad():
                each, count = job.one(s, z.shape[1], block)
            sim[block] = torch.autograd.grad(each, s, torch.ones_like(each), materialize_grads=True)[0]
            found.append((each.detach(), count))
        ctx.save_for_backward(sim, z, other)
        each, count = _join(found)
        ctx.set_materialize_grads(False)
        if count is not None:
            ctx.mark_non_differentiable(count)
        return each, count

    @staticmethod
    def backward(ctx, grad: Tensor | None, _):
        if grad is None:
            return None, None, None
        slope, z, other = ctx.saved_tensors
        _, wants_z, wants_other = ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody will differentiate this gradient: record it
            return None, *_recorded_gradient(ctx, grad, z, other)
        by_z = by_other = None
        with full_precision(grad):
            squared = ctx.job.similarity is neg_squared
            if wants_z:
                by_z = slope @ other
                if squared:
                    by_z.addcmul_(slope.sum(1, keepdim=True), z, value=-1).mul_(2)
                by_z *= grad[:, None]
            if wants_other:
                live = slice(0, ctx.job.live)
                by_live = slope[:, live].T @ (grad[:, None] * z)
                if squared:
                    by_live.addcmul_((slope[:, live].T @ grad)[:, None], other[live], value=-1).mul_(2)
                by_other = by_live if ctx.job.live is None else F.pad(by_live, (0, 0, 0, len(other) - ctx.job.live))
        return None, by_z, by_other


def _recorded_gradient(ctx, grad: Tensor, *given: Tensor) -> list[Tensor | None]:
    wanted = ctx.needs_input_grad[1:]
    with torch.random.fork_rng([grad.device] if grad.device.type == "cuda" else []), torch.enable_grad():
        ctx.resamples()
        copies = [t.view_as(t) for t in given]  # so that a sample as anchor and as partner has a gradient of its own
        each, _ = ctx.job.recorded(*copies)
    by = [c for c, needed in zip(copies, wanted) if needed]
    found = iter(torch.autograd.grad(each, by, grad, create_graph=True, allow_unused=True))
    return [next(found) if needed else None for needed in wanted]


def _join(found: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    if len(found) == 1:
        return found[0]
    each, count = zip(*found)
    return torch.cat(each), None if count[0] is None else torch.cat(count)


def _rng_restorer(device: torch.device) -> Callable[[], None]:
    """A way back to the random numbers that come next."""
    if device.type == "cuda":
        state = torch.cuda.get_rng_state(device)
        return lambda: torch.cuda.set_rng_state(state, device)
    state = torch.get_rng_state()
    return lambda: torch.set_rng_state(state)
