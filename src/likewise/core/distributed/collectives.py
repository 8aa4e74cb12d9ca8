"""Rank, shares of the work, and collectives with gradients. In a single process, the collectives return their input."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

from likewise.core.errors import LikewiseError


def started() -> int:
    """Return how many processes torchrun or `--gpus` started: WORLD_SIZE, or 1 if it is not set."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise LikewiseError(
            f"processes: WORLD_SIZE must be a number of processes, got '{text}'; unset it, or use torchrun"
        )
    return int(text)


def check_process_variables() -> None:
    """Raise unless the environment has valid values of RANK, MASTER_ADDR and MASTER_PORT."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise LikewiseError(
            f"processes: with WORLD_SIZE={started()}, {', '.join(missing)} must be set too; start the processes with torchrun, "
            "or unset WORLD_SIZE"
        )
    for name, least, most in (("RANK", 0, started() - 1), ("MASTER_PORT", 1, 65535)):
        text = os.environ[name]
        if not text.isdecimal() or not least <= int(text) <= most:
            raise LikewiseError(
                f"processes: {name} must be a number from {least} to {most}, got '{text}'; use torchrun"
            )


def world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(count: int, rank: int | None = None) -> slice:
    """Return the slice of `count` items that belongs to this process, or to the process `rank`. Shares differ by one at most."""
    own_rank, processes = world()
    return share_of(count, own_rank if rank is None else rank, processes)


def share_of(count: int, rank: int, processes: int) -> slice:
    """Return the slice of `count` items that belongs to one of several processes."""
    return slice(count * rank // processes, count * (rank + 1) // processes)


def gathered(part: Shaped[Tensor, "b ..."], count: int) -> Shaped[Tensor, "B ..."]:
    """Return the shares of all processes, concatenated. Backward, each process takes the gradient of its own share.

    For a result from which every process computes the same, such as the loss of the whole batch.

    Args:
        part: share of this process, of the size that `share` assigns.
        count: rows of all shares together.
    """
    return part if world()[1] == 1 else _Gathered.apply(part.contiguous(), count)


def total(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return the sum over all processes. Backward, gradients are summed too: each process uses the sum differently."""
    return part if world()[1] == 1 else _Total.apply(part)


def copied(whole: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return a tensor that is equal in all processes. Backward, gradients are summed: each process uses it differently."""
    return whole if world()[1] == 1 else _Copied.apply(whole)


def summed(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return the sum over all processes. Backward, the gradient is passed on unchanged: all processes use the sum alike.

    The counterpart of `copied`.
    """
    return part if world()[1] == 1 else _Summed.apply(part)


@torch.no_grad()
def highest(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return the elementwise maximum over all processes, without a gradient."""
    if world()[1] == 1:
        return part.detach()
    part = part.detach().clone()
    dist.all_reduce(part, dist.ReduceOp.MAX)
    return part


def _added(t: Tensor) -> Tensor:
    """Return the sum over all processes, without a gradient."""
    t = t.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(t)
    return t


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part: Tensor, count: int) -> Tensor:
        ctx.rows = share(count)
        sizes = [share(count, rank) for rank in range(world()[1])]
        most = max(s.stop - s.start for s in sizes)
        kind = part.dtype  # not every backend supports booleans
        part = part.to(torch.uint8) if kind == torch.bool else part
        part = torch.cat([part, part.new_zeros((most - len(part), *part.shape[1:]))])
        parts = [torch.empty_like(part) for _ in sizes]
        dist.all_gather(parts, part)
        return torch.cat([p[: s.stop - s.start] for p, s in zip(parts, sizes, strict=True)]).to(kind)

    @staticmethod
    def backward(ctx, slope: Tensor) -> tuple[Tensor, None]:
        return slope[ctx.rows], None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part: Tensor) -> Tensor:
        return _added(part)

    @staticmethod
    def backward(ctx, slope: Tensor) -> Tensor:
        return _added(slope)


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole: Tensor) -> Tensor:
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx, slope: Tensor) -> Tensor:
        return _added(slope)


class _Summed(_Total):
    @staticmethod
    def backward(ctx, slope: Tensor) -> Tensor:
        return slope
