"""Softmax over cosines to one proxy per class, with a margin: shared by ArcFace, CosFace and related losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.distributed.sharded_proxies import cross_entropy
from likewise.errors import LikewiseError
from likewise.similarity import at_least_float32, full_precision


def check_scale(owner: str, scale: float) -> None:
    """Raise unless the scale of the logits is above 0."""
    if not scale > 0:
        raise LikewiseError(f"{owner}: scale must be above 0, got {scale}")


def uniform_proxies(classes: int, dim: int) -> nn.Parameter:
    """Return one random proxy per class, uniform within plus or minus 1 / sqrt(dim)."""
    return nn.Parameter(torch.empty(classes, dim).uniform_(-(dim**-0.5), dim**-0.5))


def margin_softmax(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    proxies: Float[Tensor, "c D"],
    classes: int,
    scale: float,
    margin: Callable[[Tensor], Tensor] | None = None,
    with_own: bool = True,
) -> Float[Tensor, "B"]:
    """Return the cross-entropy of the scaled cosines to all proxies, in float32 at least; see `sharded_proxies.cross_entropy`.

    Args:
        margin: function from the scaled cosine of a sample's own class to its logit; None: no margin.
        with_own: whether the sum in the denominator includes the sample's own class.
    """
    with full_precision(z):
        return cross_entropy(scale * at_least_float32(z), y, proxies, classes, margin, with_own)
