"""Proxies shared out among processes, for very many classes: each holds some of them, and all see one exact loss.

>>> from likewise.losses import NormSoftmax
>>> loss = NormSoftmax(classes=6, dim=2)  # whole, from the same seed in every process
>>> shard(loss)  # from here on a process of n holds 6 / n proxies; alone, all of them
>>> optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
>>> z, y = torch.eye(2), torch.tensor([0, 5])  # the whole batch, the same in every process
>>> loss(z, y).mean().backward()  # the numbers and the gradient of one process with all proxies
>>> optimizer.step()
>>> list(whole(loss)), whole(loss)["proxies"].shape  # what the first process stores, whatever n is
(['proxies'], torch.Size([6, 2]))

As in Deng et al. 2019 (ArcFace, on parallel training) and An et al. 2021 (Partial FC), whose drawing of classes is left out.
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

from likewise.distributed.collectives import copied, highest, share, summed, world
from likewise.similarity import exact_softplus, full_precision, unit_rows
from likewise.types import LikewiseError


def shard(part: nn.Module) -> None:
    """Keep only this process's proxies of a loss, or of the losses inside a term. Alone, all are kept.

    Call it before the first step, on what was built from the same seed everywhere. From then on all processes call the loss
    (and its `guess`) together, each with the whole batch. The gradient of the proxies is then whole: it must not be averaged.
    """
    # Any: contracts.Loss, which imports this file.
    losses: list[Any] = [m for m in part.modules() if hasattr(m, "can_shard")]
    for loss in losses:
        name, many = type(loss).__name__, world()[1]
        if not loss.can_shard:
            raise LikewiseError(
                f"shard: a loss must work with a share of its proxies, got {name}, which needs them all or has none; "
                "use ArcFace, CosFace, NormSoftmax or ProxyNCA, or leave the proxies whole"
            )
        if loss.classes < many:
            raise LikewiseError(
                f"shard: every process needs a class at least, got classes={loss.classes} of {name} for {many} processes; "
                "leave the proxies whole"
            )
    for loss in losses:
        if len(loss.proxies) == loss.classes:  # not yet
            loss.proxies.data = loss.proxies.data[share(loss.classes)].clone()


def cross_entropy(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    proxies: Float[Tensor, "c D"],
    classes: int,
    margin: Callable[[Tensor], Tensor] | None = None,
    with_own: bool = True,
) -> Float[Tensor, "B"]:
    """-log( e^(l_iy) / sum_c e^(l_ic) ), l_ic the product of z_i with proxy c at unit length; of all proxies or of a share.

    Args:
        z: embeddings times the scale of the loss, all of the batch in every process.
        proxies: of all classes, or this process's share of them.
        margin: what becomes of the logits of the own classes, one a sample.
        with_own: let the sum run over the own class too.
    """
    unit = unit_rows(proxies).to(z)
    if len(proxies) == classes:
        return _unsharded_cross_entropy(z @ unit.T, y, margin, with_own)
    if len(proxies) != len(range(classes)[share(classes)]):
        me, many = world()
        raise LikewiseError(
            f"shard: process {me} of {many} must hold its share of {classes} proxies, got {len(proxies)}; shard a whole loss, "
            "once the processes have met"
        )
    own, others = _ShardedLogits.apply(copied(z), unit, y, classes)
    own = own if margin is None else margin(own)
    return (exact_softplus(others - own) if with_own else others - own).squeeze(1)


def _unsharded_cross_entropy(
    logits: Float[Tensor, "B C"], y: Int[Tensor, "B"], margin: Callable[[Tensor], Tensor] | None, with_own: bool
) -> Float[Tensor, "B"]:
    own = y[:, None]
    if margin is not None:
        logits = logits.scatter(1, own, margin(logits.gather(1, own)))
    if with_own:
        return F.cross_entropy(logits, y, reduction="none")
    next_y = (y + 1) % logits.shape[1]
    ahead = logits.gather(1, next_y[:, None]) - logits.gather(1, own)
    # Any other class tells the sum over the other classes: it is that class's logit plus its cross-entropy.
    return F.cross_entropy(logits.scatter(1, own, -torch.inf), next_y, reduction="none") + ahead.squeeze(1)


class _ShardedLogits(torch.autograd.Function):
    """Every sample's logit of its own class, and the log of the sum of e^logit over all others, wherever their proxies are.

    One matrix is kept, the exponentials, and a second is made on the way back.
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
def nearest(z: Float[Tensor, "B D"], proxies: Float[Tensor, "c D"], classes: int) -> Int[Tensor, "B"]:
    """The class of the nearest proxy, among those of all processes; of several as near, the first."""
    sim = z.float() @ F.normalize(proxies.float(), dim=1).T
    if len(proxies) == classes:
        return sim.argmax(1)
    best, at = sim.max(1)
    found = (at + share(classes).start).where(best == highest(best), classes)
    return -highest(-found).clamp_min(1 - classes)  # nobody is nearest to NaN


def shares(part: nn.Module) -> Iterator[tuple[str, nn.Parameter, int]]:
    """The parameters of which this process holds some rows only: the name in the state, the parameter, the rows in all."""
    loss: Any
    for name, loss in part.named_modules():
        if getattr(loss, "can_shard", False) and len(loss.proxies) != loss.classes:
            yield f"{name}.proxies".removeprefix("."), loss.proxies, loss.classes


def gather_rows(part: Shaped[Tensor, "b ..."], count: int) -> Shaped[Tensor, "B ..."] | None:
    """The rows of all processes in the first one's host memory; None elsewhere."""
    me, many = world()
    sizes = [len(range(count)[share(count, rank)]) for rank in range(many)]
    part = F.pad(part.detach(), (0, 0) * (part.dim() - 1) + (0, max(sizes) - len(part)))
    parts = None if me else [torch.empty_like(part) for _ in sizes]
    dist.gather(part.contiguous(), parts)
    return None if parts is None else torch.cat([p[:size].cpu() for p, size in zip(parts, sizes, strict=True)])


def whole(part: nn.Module) -> dict[str, Tensor]:
    """The state with all rows, to be stored by the first process; in others what is shared out is missing. All must call it."""
    return _without_none(part.state_dict() | {name: gather_rows(p, count) for name, p, count in shares(part)})


def own(part: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """This process's rows of a state with all rows."""
    return state | {name: _cut(state[name], count) for name, _, count in shares(part) if name in state}


def whole_memory(optimizer: torch.optim.Optimizer, parts: Iterable[nn.Module]) -> dict:
    """The optimiser's state with all rows of what is shared out in these parts, as `whole` does it."""

    def gather(memory: dict, count: int) -> dict:
        return _without_none({k: gather_rows(v, count) if _by_row(v) else v for k, v in memory.items()})

    return _map_sharded_state(optimizer, optimizer.state_dict(), parts, gather)


def own_memory(optimizer: torch.optim.Optimizer, state: dict, parts: Iterable[nn.Module]) -> dict:
    """This process's rows of an optimiser's state with all rows."""

    def cut(memory: dict, count: int) -> dict:
        return {k: _cut(v, count) if _by_row(v) else v for k, v in memory.items()}

    return _map_sharded_state(optimizer, state, parts, cut)


def gradient_norm(parts: Iterable[nn.Module]) -> Float[Tensor, ""]:
    """The length of all gradients in these parts taken together, the same in every process."""
    parts = list(parts)
    shared = {p: p.grad for part in parts for _, p, _ in shares(part) if p.grad is not None}
    alike = [p.grad for part in parts for p in part.parameters() if p.grad is not None and p not in shared]
    norm = nn.utils.get_total_norm(alike)
    if not shared:
        return norm
    return (norm.square() + summed(nn.utils.get_total_norm(list(shared.values())).square())).sqrt()


def _map_sharded_state(optimizer: torch.optim.Optimizer, state: dict, parts: Iterable[nn.Module], change: Callable) -> dict:
    """A state in which what is remembered of parameters that are shared out was changed."""
    counts = {p: count for part in parts for _, p, count in shares(part)}
    order = [p for group in optimizer.param_groups for p in group["params"]]  # a state counts parameters in this order
    changed = {
        n: change(memory, counts[order[n]]) if order[n] in counts else memory for n, memory in state["state"].items()
    }
    return state | {"state": changed}


def _by_row(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0  # not the number of steps


def _cut(rows: Tensor, count: int) -> Tensor:
    return rows[share(count)] if len(rows) == count else rows  # others are refused by who loads them


def _without_none(state: dict) -> dict:
    return {k: v for k, v in state.items() if v is not None}
