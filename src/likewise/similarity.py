"""Similarities (high = near) and the masked reductions that pair losses are written in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.types import Pairs, Ref

NEAREST = 1e-8
"""Squared distances below this count as this: the root's slope at 0 is infinite, and 0 * inf is NaN."""


def cosine(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Dot product, which is the cosine for the unit embeddings that losses get."""
    return a @ b.T


def neg_euclidean(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Minus the Euclidean distance, for raw embeddings."""
    squared = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T
    return -squared.clamp_min(NEAREST).sqrt()


def distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Euclidean distance between unit vectors of this cosine, with a finite slope where two of them coincide."""
    return (2 - 2 * sim).clamp_min(NEAREST).sqrt()


def squared_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Squared Euclidean distance between unit vectors of this cosine."""
    return (2 - 2 * sim).clamp_min(0)


def full_precision(z: Tensor):
    """Switch autocast off for what follows: exponentials of similarities need float32."""
    return torch.autocast(z.device.type, enabled=False) if torch.is_autocast_enabled(z.device.type) else nullcontext()


def at_least_float32(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Autocast hands over 16-bit numbers; similarities and norms need more."""
    return z if z.dtype == torch.float64 else z.float()


def compare(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None = None,
    similarity: Callable[[Tensor, Tensor], Tensor] = cosine,
) -> tuple[Float[Tensor, "B R"], Pairs]:
    """Similarity of every sample to every reference, and who shares its label. A sample is never its own partner."""
    ref = ref or Ref(z, y, torch.arange(len(y), device=y.device))
    with full_precision(z):
        sim = similarity(at_least_float32(z), at_least_float32(ref.z))
    same = y[:, None] == ref.y[None, :]
    if ref.own is None:
        return sim, Pairs(same, ~same)
    own = ref.own[:, None] == torch.arange(len(ref.y), device=y.device)[None, :]
    return sim, Pairs(same & ~own, ~same)


def log1p_sum_exp(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"]) -> Float[Tensor, "B"]:
    """log(1 + sum of e^x over the mask), row by row: never overflows, and 0 where the mask is empty."""
    x = x.masked_fill(~mask, -torch.inf)
    top = x.detach().amax(1, keepdim=True).clamp_min(0)
    total = (x - top).exp().sum(1, keepdim=True) + (-top).exp()
    return (total.log() + top).squeeze(1)


def mean_over(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"]) -> Float[Tensor, "B"]:
    """Mean over the mask, row by row; 0 where it is empty."""
    return x.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp_min(1)


def pick(mask: Bool[Tensor, "B R"]) -> tuple[Int[Tensor, "B"], Bool[Tensor, "B"]]:
    """One uniformly drawn column of each row's mask, and whether the row has any.

    Draws come from torch's default generator, which the training loop seeds and stores.
    """
    noise = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, -1)
    top, column = noise.max(1)
    return column, top >= 0


def spread(each: Float[Tensor, "B"], valid: Bool[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Per-sample numbers whose mean over the batch is the mean of `each` over the valid samples."""
    return each.masked_fill(~valid, 0) * (len(each) / valid.sum().clamp_min(1))
