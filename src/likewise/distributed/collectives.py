"""Several processes that train together: who is who, and what they add up, with the gradient. Alone, nothing happens."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

from likewise.errors import LikewiseError


def started() -> int:
    """How many processes torchrun, or `--gpus`, started together: WORLD_SIZE, or 1 where it is not set."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise LikewiseError(
            f"processes: WORLD_SIZE must be a number of processes, got '{text}'; unset it, or use torchrun"
        )
    return int(text)


def check_process_variables() -> None:
    """Raise unless the environment says which process this is, and where it meets the others."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise LikewiseError(
            f"processes: WORLD_SIZE={started()} needs {', '.join(missing)} beside it; start the processes with torchrun, "
            "or unset it"
        )
    for name, least, most in (("RANK", 0, started() - 1), ("MASTER_PORT", 1, 65535)):
        text = os.environ[name]
        if not text.isdecimal() or not least <= int(text) <= most:
            raise LikewiseError(
                f"processes: {name} must be a number from {least} to {most}, got '{text}'; use torchrun"
            )


def world() -> tuple[int, int]:
    """This process's number, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(count: int, rank: int | None = None) -> slice:
    """Which of so many things in a row are this process's (or another's) own. Shares differ by one at most."""
    me, many = world()
    return share_of(count, me if rank is None else rank, many)


def share_of(count: int, rank: int, processes: int) -> slice:
    """Return the part of `count` things in a row that one of several processes works on."""
    return slice(count * rank // processes, count * (rank + 1) // processes)


def gathered(part: Shaped[Tensor, "b ..."], count: int) -> Shaped[Tensor, "B ..."]:
    """The shares of all processes, one after another, in what everyone works out alike; each takes the gradient of its own share.

    Args:
        count: of all shares together, which are as `share` cuts them.
    """
    return part if world()[1] == 1 else _Gathered.apply(part.contiguous(), count)


def total(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The sum over all processes, where each goes on with it in its own way: gradients are summed too."""
    return part if world()[1] == 1 else _Total.apply(part)


def copied(whole: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """What all processes hold alike and now use in different ways: the gradient is the sum of theirs."""
    return whole if world()[1] == 1 else _Copied.apply(whole)


def summed(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The sum over all processes, with which all go on alike: each part's gradient is that of the sum. Goes with `copied`."""
    return part if world()[1] == 1 else _Summed.apply(part)


@torch.no_grad()
def highest(part: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The largest of each number among all processes. Without a gradient."""
    if world()[1] == 1:
        return part.detach()
    part = part.detach().clone()
    dist.all_reduce(part, dist.ReduceOp.MAX)
    return part


def _added(t: Tensor) -> Tensor:
    t = t.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(t)
    return t


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part: Tensor, count: int) -> Tensor:
        ctx.rows = share(count)
        sizes = [share(count, rank) for rank in range(world()[1])]
        most = max(s.stop - s.start for s in sizes)
        kind = part.dtype  # not every backend knows truth values
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
