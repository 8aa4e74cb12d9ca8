"""Influence through every layer of a network, not its head alone: at first order, without a gradient per sample.

A sample's gradient by all parameters is J^T g, with g its `shares` and J the slope of its embedding by the parameters. An error
says where the parameters should go: one backward pass over its pictures. Along that way v the embeddings of training samples
move by J v, one forward-mode pass, and influence is <g, J v>. In evaluation mode, so a sample's embedding is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from likewise.audit.influence import Space, apart, checked_groups
from likewise.types import LikewiseError

Way = dict[str, Tensor]
"""A direction in the space of parameters: a tensor for each, by name."""


@torch.enable_grad()
def deep_repairs(
    embedder: nn.Module,
    x: Shaped[Tensor, "n ..."],
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    group: Int[Tensor, "P"] | None = None,
    space: Space = "unit",
    *,
    under: tuple[str, ...] = ("",),
    batch: int = 32,
) -> list[Way]:
    """The gradient by parameters of what should grow, for every error: `repairs` through all layers.

    Args:
        x: pictures (or features) of test samples, as the network takes them, on its device.
        pair: two positions in x; sign and group as in `repairs`.
        under: parameters whose names start with one of these; ("head.",) is the head. Each error keeps one number a parameter.
        batch: pictures that go through the network at once.
    """
    group = checked_groups(len(x), pair, sign, group)
    own = {name: p.detach().requires_grad_() for name, p in embedder.named_parameters() if name.startswith(under)}
    if not own:
        names = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in embedder.named_parameters()))
        raise LikewiseError(f"deep_repairs: no parameter stands under {under}; the network has: {names}")
    with evaluating(embedder):
        with torch.no_grad():
            e = torch.cat([embedder(part).e for part in x.split(batch)])
        share = sign.to(e) / torch.bincount(group)[group].to(e)
        _, slope = apart(e[pair], share, space)
        ways = []
        for error in range(int(group.max()) + 1):
            rows, place = pair[group == error].flatten().unique(return_inverse=True)
            pull = e.new_zeros(len(rows), e.shape[1]).index_add_(0, place, slope[group == error].flatten(0, 1))
            way = {name: torch.zeros_like(p) for name, p in own.items()}
            for some, a in zip(rows.split(batch), pull.split(batch)):
                value = (torch.func.functional_call(embedder, own, (x[some],)).e * a).sum()
                slopes = torch.autograd.grad(value, list(own.values()), materialize_grads=True)
                for total, one in zip(way.values(), slopes):
                    total += one
            ways.append(way)
    return ways


@torch.no_grad()
def deep_influence(
    embedder: nn.Module, batches: Iterable[Shaped[Tensor, "_ ..."]], g: Float[Tensor, "N D"], aim: list[Way]
) -> Float[Tensor, "Q N"]:
    """What every sample does to every error through the parameters that `aim` names; high = harmful.

    With the weights of a linear head alone it is `influence`. It takes a forward-mode pass an error over the training
    pictures, each worth about four plain ones.

    Args:
        batches: training pictures, in the order of g, on the network's device.
        g: `shares` of the training samples, there too. So it goes with every loss, and the loss is not needed here.
        aim: from `deep_repairs`.
    """
    own = {name: p.detach() for name, p in embedder.named_parameters() if name in aim[0]}
    found = g.new_full((len(aim), len(g)), torch.nan)
    first = 0
    with evaluating(embedder):
        for x in batches:
            mine = slice(first, first + len(x))
            first = mine.stop
            if first > len(g):
                break

            def embed(parameters: Way, x: Tensor = x) -> Tensor:
                return torch.func.functional_call(embedder, parameters, (x,)).e

            for q, way in enumerate(aim):
                _, shift = torch.func.jvp(embed, (own,), (way,))  # pyright: ignore[reportAssignmentType]
                found[q, mine] = (shift.to(g) * g[mine]).sum(1)
    if first != len(g):
        raise LikewiseError(
            f"deep_influence: batches must hold the {len(g)} training samples of g, in their order, "
            f"got {first}{' or more' if first > len(g) else ''}"
        )
    if not bool(found.isfinite().all()):
        raise LikewiseError(
            "deep_influence: the network's slopes must be finite, got some that are not; check its weights"
        )
    return found


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """The network in evaluation mode, and afterwards as it was; attention in plain operations, for they have slopes."""
    mode = network.training
    network.eval()
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        network.train(mode)
