"""Several processes, one result: each does its share of the work and everyone gets the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from likewise.types import Retrieval


def world() -> tuple[int, int]:
    """This process's number, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def rank_in_shares(queries: int, rank_some: Callable[[slice], Retrieval]) -> Retrieval:
    """Each process ranks its share of the queries against the whole gallery; the same ranking as alone, to the last row.

    Args:
        rank_some: ranks these queries; their numbers in what it returns count from 0.
    """
    me, many = world()
    edge = [queries * i // many for i in range(many + 1)]
    found = rank_some(slice(edge[me], edge[me + 1]))
    if many == 1:
        return found
    count = _gather(found.start.diff())
    whole = {name: _gather(getattr(found, name)) for name in ("row", "match", "sim", "relevant", "depth", "hit_rank")}
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return replace(found, query=torch.arange(queries, device=start.device), start=start, **whole)


def _gather(part: Tensor) -> Tensor:
    """The parts of all processes, one after another; they may differ in length."""
    size = torch.tensor([len(part)], device=part.device)
    sizes = [torch.zeros_like(size) for _ in range(world()[1])]
    dist.all_gather(sizes, size)
    most = max(int(s) for s in sizes)
    kind = part.dtype
    part = part.to(torch.uint8) if kind == torch.bool else part
    padded = torch.cat([part, part.new_zeros((most - len(part), *part.shape[1:]))])
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded.contiguous())
    return torch.cat([p[: int(s)] for p, s in zip(parts, sizes, strict=True)]).to(kind)
