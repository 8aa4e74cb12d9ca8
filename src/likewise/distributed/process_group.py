"""Several processes, one result: each does its share of the work and everyone gets the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from likewise.distributed.collectives import check_process_variables, started, world
from likewise.types import Retrieval


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """With the processes that torchrun started beside this one, if it did; the device is then this process's own."""
    if started() == 1 or world()[1] > 1:
        yield device
        return
    check_process_variables()
    # What lies on the host is exchanged there, without a device that would have to wait.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with peer_errors():
        dist.init_process_group(backend, timeout=timedelta(hours=2))  # one may work while the others wait for it
        try:
            yield device
        except BaseException:
            if device.type != "cuda":  # a GPU would wait for a process that may have gone
                dist.destroy_process_group()
            raise
        dist.destroy_process_group()


class PeerLost(RuntimeError):
    """Another process of the group went away; this one has no error of its own."""


@contextmanager
def peer_errors() -> Iterator[None]:
    """Raise `PeerLost` in place of torch's errors about a lost connection.

    The text of gloo's errors is looked at here and nowhere else: they are plain RuntimeErrors.
    """
    try:
        yield
    except RuntimeError as error:
        words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo")
        if isinstance(error, dist.DistError) or any(word in str(error) for word in words):
            raise PeerLost(str(error)) from error
        raise


def wait_for_all() -> None:
    """Go on once every process is here."""
    if world()[1] > 1:
        dist.barrier()


def one_by_one(work: Callable[[], None]) -> None:
    """The first process does it before the others, who then find what it left behind."""
    if world()[0] == 0:
        work()
    wait_for_all()
    if world()[0] > 0:
        work()


def anybody(*said: bool) -> tuple[bool, ...]:
    """Which of these any process says, so that all go the same way. The host asks; the device works on."""
    if world()[1] == 1:
        return said
    asked = torch.tensor(said, dtype=torch.uint8)
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    return tuple(asked.bool().tolist())


def same_for_all(t: Tensor) -> Tensor:
    """What the first process has, in every process."""
    if world()[1] > 1:
        t = t.contiguous()
        dist.broadcast(t, 0)
    return t


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
