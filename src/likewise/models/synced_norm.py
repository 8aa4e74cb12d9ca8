"""BatchNorm over several processes: every process normalises by the statistics of the whole batch."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.core.distributed.collectives import gathered, total, world
from likewise.core.errors import LikewiseError
from likewise.core.similarity import at_least_float32

SUPPORTED_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormAct2d")
"""Classes that `sync_norms` supports. The last is timm's, which applies dropout and activation after the norm."""


def sync_norms(module: nn.Module) -> None:
    """Change every BatchNorm in the module to use, in training, the samples of all processes; their numbers may differ.

    Names in the state dict stay. Evaluation and training with one process do not change. (torch's SyncBatchNorm does not support
    the CPU.)
    """
    for name, norm in module.named_modules():
        if not isinstance(norm, _BatchNorm) or isinstance(norm, _Synced):
            continue
        if type(norm).__name__ not in SUPPORTED_NORMS:
            raise LikewiseError(
                f"sync_norms: BatchNorm must be one of {', '.join(SUPPORTED_NORMS)}, got {type(norm).__name__} at '{name}';"
                " freeze the norms (freeze_bn) or use another network"
            )
        norm.__class__ = synced(type(norm))


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
        x = F.batch_norm(
            _GradientThroughStatistics.apply(x, mean, var + self.eps, count), mean, var, scale, shift, eps=self.eps
        )
        return self.act(self.drop(x)) if hasattr(self, "act") else x  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def follow(self, mean: Float[Tensor, "C"], var: Float[Tensor, "C"]) -> None:
        """Update the running statistics; with momentum None they are means over all batches."""
        assert self.num_batches_tracked is not None and self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / self.num_batches_tracked.to(mean.dtype) if self.momentum is None else self.momentum
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            running.copy_(running * (1 - momentum) + new * momentum)


@torch.no_grad()
def statistics(x: Float[Tensor, "B C *places"]) -> tuple[Float[Tensor, "C"], Float[Tensor, "C"], Float[Tensor, ""]]:
    """Return mean, biased variance and number of values of every channel over all processes; at least float32.

    Each process centres by its own mean, which is as accurate as two passes over all values; one all-gather combines them.
    """
    x = at_least_float32(x)
    here = x.numel() // max(x.shape[1], 1)
    var, mean = torch.var_mean(x, all_but_channels(x), correction=0) if here else x.new_zeros(2, x.shape[1])
    each = gathered(torch.cat([mean, var, mean.new_full((1,), here)])[None], world()[1])
    counts, means, variances = each[:, -1:], *each[:, :-1].chunk(2, 1)
    count = counts.sum()
    mean = (means * counts).sum(0) / count
    return mean, ((variances + (means - mean).square()) * counts).sum(0) / count, count


def all_but_channels(x: Float[Tensor, "B C *places"]) -> list[int]:
    """Return all dimensions except that of the channels."""
    return [0, *range(2, x.ndim)]


class _GradientThroughStatistics(torch.autograd.Function):
    """The identity on x whose backward pass adds the gradient through mean and variance of the whole batch.

    With g the gradient of a norm by constants, and c = x - mean: dx = g - mean(g) - c mean(g c) / var, means over all processes.
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
        both = total(torch.stack([g.sum(all_but_channels(x)), (g * c).sum(all_but_channels(x)) / var])) / count
        return (g - both[0].view(shape) - c.mul_(both[1].view(shape))).to(x.dtype), None, None, None
