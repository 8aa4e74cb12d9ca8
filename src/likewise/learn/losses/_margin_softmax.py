"""Softmax over cosines to one proxy per class, with a margin: shared by ArcFace, CosFace and related losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.contracts import Relevance
from likewise.core.distributed.sharded_proxies import cross_entropy
from likewise.core.errors import LikewiseError
from likewise.core.similarity import (
    EMPTY_SUM_THRESHOLD,
    at_least_float32,
    full_precision,
    log_sum_exp,
    unit_rows,
    weighted_mean,
)


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
    relevance: Relevance | None = None,
    unit_proxies: bool = True,
) -> Float[Tensor, "B"]:
    """Return the cross-entropy of the scaled cosines to all proxies, in float32 at least; see `sharded_proxies.cross_entropy`.

    Args:
        margin: function from the scaled cosine of a sample's own class to its logit; None: no margin.
        with_own: whether the sum in the denominator includes the sample's own class.
        relevance: source of the targets, for ids in place of labels; None: the label is the target.
        unit_proxies: as in `sharded_proxies.cross_entropy`.
    """
    with full_precision(z):
        z = scale * at_least_float32(z)
        if relevance is None:
            return cross_entropy(z, y, proxies, classes, margin, with_own, unit_proxies)
        if len(proxies) != relevance.width:
            raise LikewiseError(
                f"{type(relevance).__name__}: the loss must have a proxy for each of {relevance.width} targets, got "
                f"{len(proxies)} proxies; build it with classes={relevance.width}, and do not shard the proxies"
            )
        logits = z @ (unit_rows(proxies) if unit_proxies else proxies).to(z).T
        return target_cross_entropy(logits, relevance.targets(y), relevance.threshold, margin, with_own)


def target_cross_entropy(
    logits: Float[Tensor, "B C"],
    r: Float[Tensor, "B C"],
    threshold: float,
    margin: Callable[[Tensor], Tensor] | None = None,
    with_own: bool = True,
) -> Float[Tensor, "B"]:
    """Return the cross-entropy with soft targets, -sum_c q_ic log( e^(l_ic) / sum_k e^(l_ik) ), q_ic = r_ic / sum_k r_ik.

    With one target of relevance 1 this is `sharded_proxies.logit_cross_entropy`. A sample without targets has the value 0.

    Args:
        r: relevance of every sample to every proxy.
        threshold: proxies of this relevance or more are a sample's own.
        margin: function from the logits of a sample's own proxies to the logits with margin.
        with_own: whether the sum includes the sample's own proxies.
    """
    r, own = r.to(logits), r >= threshold
    if margin is not None:
        logits = torch.where(own, margin(logits), logits)
    total = log_sum_exp(logits, torch.ones_like(own) if with_own else ~own)
    return (total - weighted_mean(logits, r)).where(r.any(1) & (total > EMPTY_SUM_THRESHOLD), 0.0)
