"""Influence through all layers of a network, not only its head: first order, without a gradient per sample.

The gradient of a sample by all parameters is J^T g, with g its `embedding_gradients` and J the Jacobian of its embedding by the
parameters. The direction v that repairs an error takes one backward pass over its images. Along v, the embeddings of training
samples move by J v, one forward-mode pass, and the influence is <g, J v>. The network is in evaluation mode, so the embedding
of a sample does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from likewise.core.types import LikewiseError
from likewise.curate.audit.influence import Space, check_groups, pair_distances

Direction = dict[str, Tensor]
"""A direction in parameter space: name of a parameter -> tensor of its shape."""


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
) -> list[Direction]:
    """Return for every error the gradient, by all parameters, of the signed distance that should grow.

    This is `repairs` through all layers.

    Args:
        x: images (or features) of test samples, as the network takes them, on its device.
        pair: two positions in x. `sign` and `group` are as in `repairs`.
        under: prefixes of the parameter names to use; ("head.",) is the head. Every error holds one value per parameter.
        batch: images per forward pass.
    """
    group = check_groups(len(x), pair, sign, group)
    own = {name: p.detach().requires_grad_() for name, p in embedder.named_parameters() if name.startswith(under)}
    if not own:
        names = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in embedder.named_parameters()))
        raise LikewiseError(
            f"deep_repairs: `under` must be a prefix of parameter names, got {under}; the network has: {names}"
        )
    with evaluating(embedder):
        with torch.no_grad():
            e = torch.cat([embedder(images).e for images in x.split(batch)])
        share = sign.to(e) / torch.bincount(group)[group].to(e)
        _, slope = pair_distances(e[pair], share, space)
        directions = []
        for error in range(int(group.max()) + 1):
            rows, place = pair[group == error].flatten().unique(return_inverse=True)
            pull = e.new_zeros(len(rows), e.shape[1]).index_add_(0, place, slope[group == error].flatten(0, 1))
            direction = {name: torch.zeros_like(p) for name, p in own.items()}
            for some, a in zip(rows.split(batch), pull.split(batch)):
                value = (torch.func.functional_call(embedder, own, (x[some],)).e * a).sum()
                slopes = torch.autograd.grad(value, list(own.values()), materialize_grads=True)
                for total, one in zip(direction.values(), slopes):
                    total += one
            directions.append(direction)
    return directions


@torch.no_grad()
def deep_influence(
    embedder: nn.Module, batches: Iterable[Shaped[Tensor, "_ ..."]], g: Float[Tensor, "N D"], aim: list[Direction]
) -> Float[Tensor, "Q N"]:
    """Return the influence of every sample on every error through the parameters in `aim`; high = harmful.

    For the weights of a linear head alone, it equals `influence`. It takes one forward-mode pass over the training images per
    error, which costs about four ordinary forward passes.

    Args:
        batches: training images in the order of g, on the network's device.
        g: `embedding_gradients` of the training samples, on the same device. They contain all that is needed of the loss.
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

            def embed(parameters: Direction, x: Tensor = x) -> Tensor:
                return torch.func.functional_call(embedder, parameters, (x,)).e

            for q, direction in enumerate(aim):
                _, shift = torch.func.jvp(embed, (own,), (direction,))  # pyright: ignore[reportAssignmentType]
                found[q, mine] = (shift.to(g) * g[mine]).sum(1)
    if first != len(g):
        raise LikewiseError(
            f"deep_influence: batches must hold the {len(g)} training samples of g, in their order, "
            f"got {first}{' or more' if first > len(g) else ''}"
        )
    if not bool(found.isfinite().all()):
        raise LikewiseError(
            "deep_influence: the network's derivatives must be finite, got some that are not; check its weights"
        )
    return found


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put the network into evaluation mode for a block.

    Attention runs in plain operations, which have forward-mode derivatives.
    """
    mode = network.training
    network.eval()
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        network.train(mode)
