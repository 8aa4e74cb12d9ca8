"""Proxies sharded over processes, for very many classes: each process holds some proxies, and the loss is exact.

>>> from likewise.losses import NormSoftmax
>>> loss = NormSoftmax(classes=6, dim=2)  # whole, from the same seed in every process
>>> shard(loss)  # now each of n processes holds 6 / n proxies; a single process holds all
>>> optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
>>> z, y = torch.eye(2), torch.tensor([0, 5])  # the whole batch, the same in every process
>>> loss(z, y).mean().backward()  # the same values and gradients as in one process with all proxies
>>> optimizer.step()
>>> list(whole(loss)), whole(loss)["proxies"].shape  # the state that the first process stores, for any n
(['proxies'], torch.Size([6, 2]))

As in Deng et al. 2019 (ArcFace, on parallel training) and An et al. 2021 (Partial FC), without the sampling of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from likewise.core.distributed.collectives import copied, highest, share, summed, world
from likewise.core.similarity import exact_softplus, full_precision, unit_rows
from likewise.core.types import LikewiseError


def shard(part: nn.Module) -> None:
    """Reduce the proxies of a loss, or of the losses inside a term, to the share of this process. A single process keeps all.

    Call it before the first step, on a module that was built from the same seed in every process. From then on all processes
    must call the loss (and its `predict`) together, each with the whole batch. The gradient of the proxies is then complete and
    must not be averaged over processes.
    """
    # Any: contracts.Loss, which imports this file.
    losses: list[Any] = [m for m in part.modules() if hasattr(m, "can_shard")]
    for loss in losses:
        name, processes = type(loss).__name__, world()[1]
        if not loss.can_shard:
            raise LikewiseError(
                f"shard: the loss must support sharded proxies, got {name}, which needs all proxies or has none; "
                "use ArcFace, CosFace, NormSoftmax, ProxyNCA(squared=True) or Softmax, or do not shard the proxies"
            )
        if loss.classes < processes:
            raise LikewiseError(
                f"shard: there must be at least one class per process, got classes={loss.classes} of {name} for {processes} "
                "processes; do not shard the proxies"
            )
    for loss in losses:
        if len(loss.proxies) == loss.classes:  # not sharded yet
            loss.proxies.data = loss.proxies.data[share(loss.classes)].clone()


def cross_entropy(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    proxies: Float[Tensor, "c D"],
    classes: int,
    margin: Callable[[Tensor], Tensor] | None = None,
    with_own: bool = True,
    unit_proxies: bool = True,
) -> Float[Tensor, "B"]:
    """Return -log( e^(l_iy) / sum_c e^(l_ic) ) for every sample, with l_ic = z_i p_c / |p_c|; the proxies may be sharded.

    Args:
        z: embeddings times the scale of the loss; the whole batch in every process.
        proxies: proxies of all classes, or the share of this process.
        classes: number of classes.
        margin: function from the logit of a sample's own class to the logit with margin.
        with_own: whether the sum includes the sample's own class.
        unit_proxies: whether proxies are divided by their lengths; False: l_ic = z_i p_c.
    """
    unit = (unit_rows(proxies) if unit_proxies else proxies).to(z)
    if len(proxies) == classes:
        return logit_cross_entropy(z @ unit.T, y, margin, with_own)
    if len(proxies) != len(range(classes)[share(classes)]):
        rank, processes = world()
        raise LikewiseError(
            f"shard: process {rank} of {processes} must hold its share of {classes} proxies, got {len(proxies)}; call shard() on "
            "a loss with all proxies, after the process group was joined"
        )
    own, others = _ShardedLogits.apply(copied(z), unit, y, classes)
    own = own if margin is None else margin(own)
    return (exact_softplus(others - own) if with_own else others - own).squeeze(1)


def logit_cross_entropy(
    logits: Float[Tensor, "B C"],
    y: Int[Tensor, "B"],
    margin: Callable[[Tensor], Tensor] | None = None,
    with_own: bool = True,
) -> Float[Tensor, "B"]:
    """Return `cross_entropy` from the logits of all classes."""
    own = y[:, None]
    if margin is not None:
        logits = logits.scatter(1, own, margin(logits.gather(1, own)))
    if with_own:
        return F.cross_entropy(logits, y, reduction="none")
    next_y = (y + 1) % logits.shape[1]
    ahead = logits.gather(1, next_y[:, None]) - logits.gather(1, own)
    # log-sum over the other classes = logit of any one of them + its cross-entropy among them; here the class after y.
    return F.cross_entropy(logits.scatter(1, own, -torch.inf), next_y, reduction="none") + ahead.squeeze(1)


class _ShardedLogits(torch.autograd.Function):
    """Logit of every sample's own class, and log of the sum of e^logit over all other classes of all processes.

    One matrix, the exponentials, is stored for the backward pass, which allocates a second one.
    """

    @staticmethod
    def forward(ctx, z: Tensor, unit: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        power = z @ unit.T
        at = y[:, None] - share(classes).start
        here = (at >= 0) & (at < len(unit))
        at = at.clamp(0, len(unit) - 1)
        own = power.gather(1, at)
        power.scatter_(1, at, own.masked_fill(here, -torch.inf))
        top = highest(power.amax(1, keepdim=True))
        power.sub_(top).exp_()
        own, total = summed(torch.stack([own.masked_fill(~here, 0), power.sum(1, keepdim=True)]))
        ctx.save_for_backward(z, unit, power, total, at, here)
        return own.clone(), total.log() + top

    @staticmethod
    @once_differentiable
    def backward(ctx, by_own: Tensor, by_others: Tensor):
        z, unit, power, total, at, here = ctx.saved_tensors
        slope = power * (by_others / total)
        slope.scatter_(1, at, by_own.where(here, slope.gather(1, at)))
        with full_precision(slope):
            by_z = slope @ unit if ctx.needs_input_grad[0] else None
            by_unit = slope.T @ z if ctx.needs_input_grad[1] else None
        return by_z, by_unit, None, None


@torch.no_grad()
def nearest(
    z: Float[Tensor, "B D"], proxies: Float[Tensor, "c D"], classes: int, unit_proxies: bool = True
) -> Int[Tensor, "B"]:
    """Return the class of the nearest proxy over all processes; the first one if several are equally near.

    Args:
        unit_proxies: as in `cross_entropy`.
    """
    sim = z.float() @ (F.normalize(proxies.float(), dim=1) if unit_proxies else proxies.float()).T
    if len(proxies) == classes:
        return sim.argmax(1)
    best, at = sim.max(1)
    label = (at + share(classes).start).where(best == highest(best), classes)
    return -highest(-label).clamp_min(1 - classes)  # the clamp keeps a valid class if z is NaN


def shares(part: nn.Module) -> Iterator[tuple[str, nn.Parameter, int]]:
    """Yield the sharded parameters: name in the state, parameter, and number of rows over all processes."""
    loss: Any
    for name, loss in part.named_modules():
        if getattr(loss, "can_shard", False) and len(loss.proxies) != loss.classes:
            yield f"{name}.proxies".removeprefix("."), loss.proxies, loss.classes


def gather_rows(part: Shaped[Tensor, "b ..."], count: int) -> Shaped[Tensor, "B ..."] | None:
    """Return the rows of all processes in host memory of the first process; None in the other processes."""
    rank, processes = world()
    sizes = [len(range(count)[share(count, r)]) for r in range(processes)]
    part = F.pad(part.detach(), (0, 0) * (part.dim() - 1) + (0, max(sizes) - len(part)))
    parts = None if rank else [torch.empty_like(part) for _ in sizes]
    dist.gather(part.contiguous(), parts)
    return None if parts is None else torch.cat([p[:size].cpu() for p, size in zip(parts, sizes, strict=True)])


def whole(part: nn.Module) -> dict[str, Tensor]:
    """Return the state with all rows in the first process, which stores it; in others, without the sharded parameters.

    All processes must call this function.
    """
    return _without_none(part.state_dict() | {name: gather_rows(p, count) for name, p, count in shares(part)})


def own(part: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return this process's rows of a state with all rows."""
    return state | {name: _cut(state[name], count) for name, _, count in shares(part) if name in state}


def full_optimizer_state(optimizer: torch.optim.Optimizer, parts: Iterable[nn.Module]) -> dict:
    """Return the optimiser state with all rows of the sharded parameters of these modules; see `whole`."""

    def gather(memory: dict, count: int) -> dict:
        return _without_none({k: gather_rows(v, count) if _by_row(v) else v for k, v in memory.items()})

    return _map_sharded_state(optimizer, optimizer.state_dict(), parts, gather)


def own_optimizer_state(optimizer: torch.optim.Optimizer, state: dict, parts: Iterable[nn.Module]) -> dict:
    """Return this process's rows of an optimiser state with all rows."""

    def cut(memory: dict, count: int) -> dict:
        return {k: _cut(v, count) if _by_row(v) else v for k, v in memory.items()}

    return _map_sharded_state(optimizer, state, parts, cut)


def gradient_norm(parts: Iterable[nn.Module]) -> Float[Tensor, ""]:
    """Return the norm of all gradients of these modules together, equal in every process."""
    parts = list(parts)
    shared = {p: p.grad for part in parts for _, p, _ in shares(part) if p.grad is not None}
    replicated = [p.grad for part in parts for p in part.parameters() if p.grad is not None and p not in shared]
    norm = nn.utils.get_total_norm(replicated)
    if not shared:
        return norm
    return (norm.square() + summed(nn.utils.get_total_norm(list(shared.values())).square())).sqrt()


def _map_sharded_state(
    optimizer: torch.optim.Optimizer, state: dict, parts: Iterable[nn.Module], change: Callable
) -> dict:
    """Return an optimiser state with `change(state of a parameter, rows in all)` applied to every sharded parameter."""
    counts = {p: count for part in parts for _, p, count in shares(part)}
    # The order in which the state numbers parameters.
    order = [p for group in optimizer.param_groups for p in group["params"]]
    changed = {
        n: change(memory, counts[order[n]]) if order[n] in counts else memory for n, memory in state["state"].items()
    }
    return state | {"state": changed}


def _by_row(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0  # a scalar, such as the step count, has no rows


def _cut(rows: Tensor, count: int) -> Tensor:
    return rows[share(count)] if len(rows) == count else rows  # a wrong size raises when the state is loaded


def _without_none(state: dict) -> dict:
    return {k: v for k, v in state.items() if v is not None}
