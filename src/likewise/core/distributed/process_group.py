"""The process group of a distributed run: joining it, waiting, broadcasting, and ranking in shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from likewise.core.distributed.collectives import check_process_variables, started, world
from likewise.core.types import Retrieval


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the process group if torchrun started several processes; otherwise do nothing. Yields the device.

    Args:
        device: device of this process.
    """
    if started() == 1 or world()[1] > 1:
        yield device
        return
    check_process_variables()
    # Tensors on the host are exchanged by gloo, which needs no device sync.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with peer_errors():
        # One process may work for long while the others wait.
        dist.init_process_group(backend, timeout=timedelta(hours=2))
        try:
            yield device
        except BaseException:
            if device.type != "cuda":  # on a GPU, this call would wait for a process that may be dead
                dist.destroy_process_group()
            raise
        dist.destroy_process_group()


class PeerLost(RuntimeError):
    """Another process of the group ended; this process has no error of its own."""


@contextmanager
def peer_errors() -> Iterator[None]:
    """Raise `PeerLost` in place of torch's errors about a lost connection.

    Errors of gloo are plain RuntimeErrors, so they are recognised by their text, here and nowhere else.
    """
    try:
        yield
    except RuntimeError as error:
        words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo")
        if isinstance(error, dist.DistError) or any(word in str(error) for word in words):
            raise PeerLost(str(error)) from error
        raise


def wait_for_all() -> None:
    """Return when every process has called this function."""
    if world()[1] > 1:
        dist.barrier()


def first_process_first(work: Callable[[], None]) -> None:
    """Run `work` in the first process, then in the others, which can use the files that the first one wrote."""
    if world()[0] == 0:
        work()
    wait_for_all()
    if world()[0] > 0:
        work()


def any_process(*flags: bool) -> tuple[bool, ...]:
    """Return, for every flag, whether it is set in any process. Runs on the host, without a device sync."""
    if world()[1] == 1:
        return flags
    reduced = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(reduced, dist.ReduceOp.MAX)
    return tuple(reduced.bool().tolist())


def broadcast_from_first(t: Tensor) -> Tensor:
    """Return the tensor of the first process, in every process."""
    if world()[1] > 1:
        t = t.contiguous()
        dist.broadcast(t, 0)
    return t


def rank_in_shares(queries: int, rank_some: Callable[[slice], Retrieval]) -> Retrieval:
    """Rank all queries: each process ranks its share against the whole gallery. The result is the same as in one process.

    Args:
        queries: number of queries.
        rank_some: ranks the queries of this slice; in its result, queries count from 0.
    """
    rank, shares = world()
    # A share must not be empty: with few queries, the last processes repeat the last share.
    shares = min(shares, queries)
    rank = min(rank, shares - 1)
    edge = [queries * i // shares for i in range(shares + 1)]
    own = rank_some(slice(edge[rank], edge[rank + 1]))
    if shares == 1:
        return own
    parts = {name: _gather(getattr(own, name), shares) for name in _query_fields(own)}
    return _with_starts(own, _gather(own.start.diff(), shares), parts)


def joined_queries(parts: Sequence[Retrieval]) -> Retrieval:
    """Return the rankings of several blocks of queries as one; the queries of each count from 0."""
    count = torch.cat([one.start.diff() for one in parts])
    whole = {name: torch.cat([getattr(one, name) for one in parts]) for name in _query_fields(parts[0])}
    return _with_starts(parts[0], count, whole)


def _query_fields(found: Retrieval) -> tuple[str, ...]:
    """Return the names of the fields with one entry per query or hit, that the ranking has."""
    names = ("row", "match", "sim", "relevant", "depth", "hit_rank")
    optional = ("hit_row", "relevant_at", "value", "best", "hit_value")
    return names + tuple(name for name in optional if getattr(found, name) is not None)


def _with_starts(found: Retrieval, count: Tensor, whole: dict[str, Tensor]) -> Retrieval:
    """Return a ranking with other fields, and with the numbers of hits of all queries."""
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return replace(found, query=torch.arange(len(count), device=start.device), start=start, **whole)


def _gather(part: Tensor, count: int) -> Tensor:
    """Return the tensors of the first `count` processes, concatenated; they may differ in length."""
    size = torch.tensor([len(part)], device=part.device)
    sizes = [torch.zeros_like(size) for _ in range(world()[1])]
    dist.all_gather(sizes, size)
    most = max(int(s) for s in sizes)
    kind = part.dtype
    part = part.to(torch.uint8) if kind == torch.bool else part
    padded = torch.cat([part, part.new_zeros((most - len(part), *part.shape[1:]))])
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded.contiguous())
    return torch.cat([p[: int(s)] for p, s in zip(parts[:count], sizes[:count], strict=True)]).to(kind)
