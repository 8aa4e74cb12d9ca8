"""BatchNorm over several processes: every one normalises by the statistics of the whole batch of all of them."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.distributed.collectives import gathered, total, world
from likewise.errors import LikewiseError
from likewise.similarity import at_least_float32

KINDS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormAct2d")
"""What can be synced. The last is timm's, which drops and activates after the norm."""


def sync_norms(module: nn.Module) -> None:
    """From now on, every BatchNorm in it that trains counts the samples of all processes, however many each has.

    States keep their names; evaluation, and a process alone, go on exactly as before. (torch's SyncBatchNorm refuses the CPU.)
    """
    for name, part in module.named_modules():
        if not isinstance(part, _BatchNorm) or isinstance(part, _Synced):
            continue
        if type(part).__name__ not in KINDS:
            raise LikewiseError(
                f"sync_norms: BatchNorm must be one of {', '.join(KINDS)}, got {type(part).__name__} at '{name}';"
                " freeze the norms (freeze_bn) or take another network"
            )
        part.__class__ = synced(type(part))


@functools.cache
def synced(kind: type[_BatchNorm]) -> type[_BatchNorm]:
    return type(f"Synced{kind.__name__}", (_Synced, kind), {})


class _Synced(_BatchNorm):
    def forward(self, x: Float[Tensor, "B C *places"]) -> Float[Tensor, "B C *places"]:
        if not self.training or world()[1] == 1:
            return super().forward(x)
        self._check_input_dim(x)
        mean, var, count = statistics(x)
        if self.track_running_stats:
            self.follow(mean, var * (count / (count - 1)))
        scale, shift = (None if p is None else p.to(mean.dtype) for p in (self.weight, self.bias))
        x = F.batch_norm(_Shared.apply(x, mean, var + self.eps, count), mean, var, scale, shift, eps=self.eps)
        return self.act(self.drop(x)) if hasattr(self, "act") else x  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def follow(self, mean: Float[Tensor, "C"], var: Float[Tensor, "C"]) -> None:
        """Move the running statistics; with momentum None they are means over all batches."""
        assert self.num_batches_tracked is not None and self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / self.num_batches_tracked.to(mean.dtype) if self.momentum is None else self.momentum
        for kept, new in ((self.running_mean, mean), (self.running_var, var)):
            kept.copy_(kept * (1 - momentum) + new * momentum)


@torch.no_grad()
def statistics(x: Float[Tensor, "B C *places"]) -> tuple[Float[Tensor, "C"], Float[Tensor, "C"], Float[Tensor, ""]]:
    """Mean and (biased) variance of every channel over all processes, and of how many values; at least float32.

    Each process centres by its own mean, which is as accurate as two passes over the whole; one exchange brings these together.
    """
    x = at_least_float32(x)
    here = x.numel() // max(x.shape[1], 1)
    var, mean = torch.var_mean(x, others(x), correction=0) if here else x.new_zeros(2, x.shape[1])
    each = gathered(torch.cat([mean, var, mean.new_full((1,), here)])[None], world()[1])
    counts, means, variances = each[:, -1:], *each[:, :-1].chunk(2, 1)
    count = counts.sum()
    mean = (means * counts).sum(0) / count
    return mean, ((variances + (means - mean).square()) * counts).sum(0) / count, count


def others(x: Float[Tensor, "B C *places"]) -> list[int]:
    """All dimensions but that of the channels."""
    return [0, *range(2, x.ndim)]


class _Shared(torch.autograd.Function):
    """x, whose gradient also counts what it does through the mean and the variance of the whole.

    Where g is what a norm by constants gives back, and c = x - mean: dx = g - mean(g) - c mean(g c) / var, with means over all
    processes.
    """

    @staticmethod
    def forward(ctx, x: Tensor, mean: Tensor, var: Tensor, count: Tensor) -> Tensor:
        ctx.save_for_backward(x, mean, var, count)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, slope: Tensor) -> tuple[Tensor, None, None, None]:
        x, mean, var, count = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.ndim - 2)
        g, c = at_least_float32(slope), at_least_float32(x) - mean.view(shape)
        both = total(torch.stack([g.sum(others(x)), (g * c).sum(others(x)) / var])) / count
        return (g - both[0].view(shape) - c.mul_(both[1].view(shape))).to(x.dtype), None, None, None
