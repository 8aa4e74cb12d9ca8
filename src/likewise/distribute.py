"""Several processes, one result: each does its share of the work and everyone gets the whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from likewise.types import Batch, Output, Retrieval


def world() -> tuple[int, int]:
    """This process's number, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """With the processes that torchrun started beside this one, if it did; the device is then this process's own."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or world()[1] > 1:
        yield device
        return
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def gather(out: Output, batch: Batch) -> tuple[Output, Batch]:
    """The whole batch of all processes, in their order; gradients flow to this process's own rows. Pictures stay at home.

    Every process then works out the same objective. Multiplied by the number of processes it gives, once gradients are averaged,
    exactly the gradient of one process with the whole batch. Processes hold batches of one size.
    """
    many = world()[1]
    if many == 1:
        return out, batch
    whole = Output(*(None if t is None else _Gathered.apply(t.contiguous()) for t in out))
    return whole, Batch(batch.x, _gather(batch.y, many), _gather(batch.row, many))


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part: Tensor) -> Tensor:
        ctx.rows = slice(world()[0] * len(part), (world()[0] + 1) * len(part))
        parts = [torch.empty_like(part) for _ in range(world()[1])]
        dist.all_gather(parts, part)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, slope: Tensor) -> Tensor:
        return slope[ctx.rows]


def rank_in_shares(queries: int, rank_some: Callable[[slice], Retrieval]) -> Retrieval:
    """Each process ranks its share of the queries against the whole gallery; the same ranking as alone, to the last row.

    Args:
        rank_some: ranks these queries; their numbers in what it returns count from 0.
    """
    me, many = world()
    many = min(many, queries)  # nobody ranks nothing: of few queries, some processes rank the same
    me = min(me, many - 1)
    edge = [queries * i // many for i in range(many + 1)]
    found = rank_some(slice(edge[me], edge[me + 1]))
    if many == 1:
        return found
    count = _gather(found.start.diff(), many)
    names = ("row", "match", "sim", "relevant", "depth", "hit_rank")
    whole = {name: _gather(getattr(found, name), many) for name in names}
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return replace(found, query=torch.arange(queries, device=start.device), start=start, **whole)


def _gather(part: Tensor, many: int) -> Tensor:
    """The parts of the first `many` processes, one after another; they may differ in length."""
    size = torch.tensor([len(part)], device=part.device)
    sizes = [torch.zeros_like(size) for _ in range(world()[1])]
    dist.all_gather(sizes, size)
    most = max(int(s) for s in sizes)
    kind = part.dtype
    part = part.to(torch.uint8) if kind == torch.bool else part
    padded = torch.cat([part, part.new_zeros((most - len(part), *part.shape[1:]))])
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded.contiguous())
    return torch.cat([p[: int(s)] for p, s in zip(parts[:many], sizes[:many], strict=True)]).to(kind)
