"""Pair losses computed in blocks of rows of the similarity matrix, together with their gradient.

A pair loss reads a B x R matrix some twenty times. On the whole matrix, each operation goes through main memory and leaves a
temporary for autograd; on a block of rows that fits into the cache, it is almost free. Therefore the forward pass takes one block
at a time, lets autograd differentiate it at once, and stores one B x R matrix: the gradient by the similarities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Miner, Relevance
from likewise.core.similarity import (
    at_least_float32,
    batch_masks,
    cosine,
    full_precision,
    is_traced,
    neg_squared,
    normalise_by_count,
    reference_masks,
)
from likewise.core.types import LikewiseError, Pairs, PairSource, Ref, Tuples

CPU_BLOCK_SIZE = 2**17
"""Elements of a block on the CPU: half a megabyte, which fits into the cache of a core."""

ACCELERATOR_BLOCK_SIZE = 2**22
"""Elements of a block on an accelerator: large enough to use it fully, small enough to bound memory."""

MAX_RECORDED_SIZE = 2**24
"""Elements up to which an accelerator computes the matrix in one block, with some ten temporaries of that size."""

RowLoss = Callable[..., "Tensor | tuple[Tensor, Tensor]"]
"""(similarities of some anchors, their chosen pairs) -> value per anchor, or (sum per anchor, count per anchor)."""


def by_rows(
    rows: RowLoss,
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None = None,
    miner: Miner | None = None,
    margin: float | None = None,
    similarity: Callable[[Tensor, Tensor], Tensor] = cosine,
    relevance: Relevance | None = None,
) -> Float[Tensor, "B"]:
    """Return the values of a loss for which the value of sample i depends only on row i of the similarity matrix.

    Args:
        rows: (sim, chosen) for some rows -> one value per row; or (sum, count) per row, and then the values are scaled so that
            their mean over the batch is the sum of the sums divided by the sum of the counts.
        miner: computes `chosen` from the pairs; None: `chosen` is all pairs.
        margin: margin of the loss, for miners that use it.
        similarity: `cosine` or `neg_squared`, whose gradients are implemented here.
        relevance: source of the pairs, for ids in place of labels; None: equal labels are positives.
    """
    job = _job(rows, y, ref, similarity, miner, margin, relevance)
    with full_precision(z):
        z = at_least_float32(z)
        other = z if ref is None else at_least_float32(ref.z)
        wanted = torch.is_grad_enabled() and (z.requires_grad or other.requires_grad)
        # For a small matrix the host is the bottleneck, and plain autograd needs fewer calls.
        small = z.device.type != "cpu" and len(z) * len(other) <= MAX_RECORDED_SIZE
        if wanted and not small and not is_traced():
            each, count = _ByRows.apply(job, z, other)
        else:
            each, count = job.recorded(z, other)
    return each if count is None else normalise_by_count(each, count)


def triplets(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None,
    miner: Miner,
    margin: float | None = None,
    relevance: Relevance | None = None,
) -> Tuples:
    """Return the triplets that the miner chooses, computed block by block and without a gradient.

    Args:
        relevance: as in `by_rows`; one that gives judged triplets replaces the miner.
    """
    if relevance is not None and "triplets" in relevance.gives:
        if ref is not None:
            raise LikewiseError(
                f"{type(relevance).__name__}: judged triplets are among the samples of a batch, but the loss got a reference; "
                "use no memory, and no confidence that leaves out partners"
            )
        return relevance.triplets(y)
    job = _job(lambda *_: y, y, ref, cosine, miner, margin, relevance)
    with torch.no_grad(), full_precision(z):
        sim = cosine(at_least_float32(z), at_least_float32(z if ref is None else ref.z))
        mined: list[tuple[int, Any]] = [(b.start, job.choose(sim[b], z.shape[1], b)) for b in job.blocks(sim)]
    if len(mined) == 1:
        return mined[0][1]
    fields = {name: torch.cat([getattr(t, name) for _, t in mined]) for name in ("p", "n", "valid", "pull")}
    one_each = all(t.one_each for _, t in mined)
    return Tuples(a=torch.cat([t.a + start for start, t in mined]), **fields, one_each=one_each)


def blocks(sim: Float[Tensor, "B R"]) -> list[slice]:
    """Return the blocks of rows to compute at a time; one block if the call is compiled or the matrix is small for the device.

    Where autograd records, use `split_rows` rather than slices: the gradient of each slice is a whole matrix of zeros.
    """
    size, columns = sim.shape
    small = sim.device.type != "cpu" and sim.numel() <= MAX_RECORDED_SIZE
    if torch.compiler.is_compiling() or small:
        return [slice(0, size)]
    step = max(1, (CPU_BLOCK_SIZE if sim.device.type == "cpu" else ACCELERATOR_BLOCK_SIZE) // columns)
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]


def split_rows(sim: Float[Tensor, "B R"], parts: list[slice]) -> tuple[Float[Tensor, "b R"], ...]:
    """Return the blocks of the matrix."""
    return sim.split([p.stop - p.start for p in parts])


class _Job(NamedTuple):
    """The arguments of `by_rows`, without the embeddings."""

    rows: RowLoss
    y: Tensor
    ref_y: Tensor | None  # None: the batch itself
    own: Tensor | None
    used: Tensor | None
    live: int | None
    similarity: Callable[[Tensor, Tensor], Tensor]
    miner: Miner | None
    margin: float | None
    relevance: PairSource | None

    def blocks(self, sim: Tensor) -> list[slice]:
        return [slice(0, len(sim))] if self.miner and self.miner.whole else blocks(sim)

    def choose(self, sim: Tensor, dim: int, block: slice) -> Pairs | Tuples:
        """Return the pairs or triplets of a block that the loss uses."""
        if self.ref_y is None:
            pairs = batch_masks(self.y, block, self.relevance)
        else:
            own = None if self.own is None else self.own[block]
            pairs = reference_masks(self.y[block], self.ref_y, own, self.used, self.relevance)
        if self.miner is None:
            return pairs
        chosen = self.miner(sim.detach(), pairs, dim, self.margin)
        return replace(chosen, value=pairs.value) if isinstance(chosen, Pairs) else chosen

    def one(self, sim: Tensor, dim: int, block: slice) -> tuple[Tensor, Tensor | None]:
        """Return the values of a block, and the counts if the loss has them."""
        values = self.rows(sim, self.choose(sim, dim, block))
        return values if isinstance(values, tuple) else (values, None)

    def recorded(self, z: Tensor, other: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return values and counts of all rows, by operations that autograd records."""
        sim = self.similarity(z, other)
        parts = self.blocks(sim)
        return _join([self.one(rows, z.shape[1], part) for rows, part in zip(split_rows(sim, parts), parts)])


def _job(
    rows: RowLoss, y: Tensor, ref: Ref | None, similarity, miner: Miner | None, margin, relevance: Relevance | None
) -> _Job:
    parts = (None, None, None, None) if ref is None else (ref.y, ref.own, ref.used, ref.live)
    source = None if relevance is None else relevance.bound(y if ref is None else ref.y)
    return _Job(rows, y, *parts, similarity, miner, margin, source)


class _ByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, job: _Job, z: Tensor, other: Tensor):
        ctx.job, ctx.restore_rng = job, _rng_restorer(z.device)
        sim = job.similarity(z, other)
        done = []
        for block in job.blocks(sim):
            s = sim[block].detach().requires_grad_()
            with torch.enable_grad():
                each, count = job.one(s, z.shape[1], block)
            sim[block] = torch.autograd.grad(each, s, torch.ones_like(each), materialize_grads=True)[0]
            done.append((each.detach(), count))
        ctx.save_for_backward(sim, z, other)
        each, count = _join(done)
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
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
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
    """Return the gradients by the embeddings with a graph, for second derivatives; miners repeat their random draws."""
    wanted = ctx.needs_input_grad[1:]
    with torch.random.fork_rng([grad.device] if grad.device.type == "cuda" else []), torch.enable_grad():
        ctx.restore_rng()
        copies = [t.view_as(t) for t in given]  # separate gradients of a sample as anchor and as reference row
        each, _ = ctx.job.recorded(*copies)
    by = [c for c, needed in zip(copies, wanted) if needed]
    gradients = iter(torch.autograd.grad(each, by, grad, create_graph=True, allow_unused=True))
    return [next(gradients) if needed else None for needed in wanted]


def _join(blocks: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Return the values and counts of all blocks, concatenated."""
    if len(blocks) == 1:
        return blocks[0]
    each, count = zip(*blocks)
    return torch.cat(each), None if count[0] is None else torch.cat(count)


def _rng_restorer(device: torch.device) -> Callable[[], None]:
    """Return a function that restores the current state of the random generator."""
    if device.type == "cuda":
        state = torch.cuda.get_rng_state(device)
        return lambda: torch.cuda.set_rng_state(state, device)
    state = torch.get_rng_state()
    return lambda: torch.set_rng_state(state)
