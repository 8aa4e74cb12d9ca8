"""Heads: layers from the pooled feature of a backbone to the embedding. `__all__` is the registry."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.argument_checks import CheckedArguments, Count
from likewise.core.errors import LikewiseError
from likewise.core.similarity import at_least_float32, full_precision

__all__ = ["MLP", "PCA", "Compositional", "Identity", "Linear", "Relational", "Slices"]


class Identity(nn.Module, CheckedArguments):
    """The pooled feature, unchanged: for measuring a network without training, with `--epochs 0`.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding, equal to `features`; the run fills it in.
    """

    def __init__(self, features: Count, dim: Count):
        super().__init__()
        if features != dim:
            raise LikewiseError(
                f"Identity: dim must be the width of the feature, {features}, got {dim}; omit dim, or use Linear()"
            )
        self.features = features
        self.dim = dim

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B F"]:
        return f


class Linear(nn.Module, CheckedArguments):
    """One linear layer, the head of most papers on metric learning.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding.
    """

    def __init__(self, features: Count, dim: Count):
        super().__init__()
        self.features = features
        self.dim = dim
        self.fc = nn.Linear(features, dim)

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        return self.fc(f)


class MLP(nn.Module, CheckedArguments):
    """Linear layers with ReLU between them.

    Paper: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020.
    Differs: the hidden width is an argument, not the width of the feature.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding.
        hidden: width of every layer but the last.
        layers: number of linear layers; 1 is `Linear`. Paper: 2.
    """

    def __init__(self, features: Count, dim: Count, hidden: Count = 512, layers: Count = 2):
        super().__init__()
        self.features = features
        self.dim = dim
        self.hidden = hidden
        self.layers = layers
        widths = [features] + [hidden] * (layers - 1) + [dim]
        steps: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            steps += [nn.Linear(wide, narrow), nn.ReLU()]
        self.net = nn.Sequential(*steps[:-1])

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        return self.net(f)


class Slices(nn.Module, CheckedArguments):
    """One linear layer whose output consists of k slices of unit length, for terms that train each slice in its own way.

    It returns (e, nodes, None): the embedding, and its k slices. Distances of embeddings weigh all slices equally.

    Paper: Sanakoyeu et al., Divide and Conquer the Embedding Space for Metric Learning, CVPR 2019.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding, a multiple of k.
        k: number of slices.
    """

    def __init__(self, features: Count, dim: Count, k: Count = 4):
        super().__init__()
        require_multiple("Slices", dim, k)
        self.features = features
        self.dim = dim
        self.k = k
        self.fc = nn.Linear(features, dim)

    def forward(self, f: Float[Tensor, "B F"]) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B k d"], None]:
        nodes = F.normalize(at_least_float32(self.fc(f)).unflatten(1, (self.k, -1)), dim=2, eps=1e-6)
        return nodes.flatten(1), nodes, None


class Compositional(nn.Module, CheckedArguments):
    """Several mixtures (composites) of several small embeddings, which the term `DCML` trains with a loss each.

    It returns (e, nodes, rec): the embedding, its k composites, and how undecided each mixture is.

    Paper: Zheng et al., Deep Compositional Metric Learning, CVPR 2021.
    Formula: h_p = H_p f for p = 1..parts, w_c = softmax(W_c [h_1 .. h_parts]) with h constant, m_c = unit(sum_p w_cp h_p),
        e = [m_1 .. m_k], rec_c = -log max_p w_cp

    Args:
        features: width of the pooled feature.
        dim: width of the embedding, a multiple of k.
        k: number of composites. Authors' code: 4.
        parts: number of small embeddings. Authors' code: 4.
    """

    def __init__(self, features: Count, dim: Count, k: Count = 4, parts: Count = 4):
        super().__init__()
        require_multiple("Compositional", dim, k)
        self.features = features
        self.dim = dim
        self.k = k
        self.parts = parts
        self.part = nn.Linear(features, parts * (dim // k))
        self.mix = nn.Linear(parts * (dim // k), k * parts)

    def forward(
        self, f: Float[Tensor, "B F"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B k d"], Float[Tensor, "B k"]]:
        with full_precision(f):
            h = self.part(f.to(self.part.weight.dtype))
            w = at_least_float32(self.mix(h.detach())).unflatten(1, (self.k, self.parts)).log_softmax(2)
            nodes = F.normalize(w.exp() @ at_least_float32(h).unflatten(1, (self.parts, -1)), dim=2, eps=1e-6)
            return nodes.flatten(1), nodes, -w.amax(2)


class PCA(nn.Module, CheckedArguments):
    """Principal components of the features of the training images: for measuring a network without training (`--epochs 0`).

    The components are computed once, before training, from the training images as in evaluation; they have no gradient, and are
    stored with the network. Components beyond the rank of the features are 0.

    Args:
        features: width of the pooled feature.
        dim: number of components, at most `features`.
    """

    mean: Tensor
    components: Tensor

    def __init__(self, features: Count, dim: Count):
        super().__init__()
        if dim > features:
            raise LikewiseError(
                f"PCA: dim must be at most the width of the feature, {features}, got {dim}; lower dim, or use Linear()"
            )
        self.features = features
        self.dim = dim
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("components", torch.eye(dim, features))

    @torch.no_grad()
    def fit(self, f: Float[Tensor, "N F"]) -> None:
        """Set mean and components to those of these features. The largest coordinate of a component is positive."""
        mean = f.double().mean(0)
        gap = f.double() - mean
        power, directions = torch.linalg.eigh(gap.T @ gap)  # ascending
        power, found = power.flip(0)[: self.dim], directions.flip(1)[:, : self.dim].T
        sign = found.gather(1, found.abs().argmax(1, keepdim=True)).sign()
        full = power > power[0].clamp_min(1e-30) * 1e-10
        self.mean.copy_(mean)
        self.components.copy_((found * sign).masked_fill(~full[:, None], 0))

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        return (f - self.mean.to(f)) @ self.components.to(f).T


class Relational(nn.Module, CheckedArguments):
    """Several small embeddings (parts) that exchange messages; the term `Ensemble` trains each part with its own loss.

    It returns (e, nodes, rec): the embedding, its k parts, and the error of each part in reconstructing its input.

    Paper: Zheng et al., Deep Relational Metric Learning, ICCV 2021.
    Formula: f = [u_1 .. u_k], h_k = unit(N_k u_k), rec_k = mean (D_k h_k - u_k)^2 with h and u constant,
        s_ij = [v (A_i u_i - B_j u_j) + c]+ with u constant, m_j = sum_i s_ij h_i / sum_i s_ij, e = [.. G [h_j; m_j] ..]
    Differs: nothing from the released code, which splits the feature into slices; the paper's figure corresponds to
        `slice_input=False`. If k does not divide the feature width, the widths of the slices differ by one. It computes in
        float32, also in 16-bit training.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding, a multiple of k.
        k: number of parts. Paper: 4.
        slice_input: whether the input of a part is its slice of the feature; False: the whole feature.
        messages: whether the parts exchange messages (G starts as the identity on h); False: e is the concatenated parts.
    """

    share: Tensor

    def __init__(self, features: Count, dim: Count, k: Count = 4, slice_input: bool = True, messages: bool = True):
        super().__init__()
        require_multiple("Relational", dim, k)
        if slice_input and features < k:
            raise LikewiseError(
                f"Relational: features must be at least k={k} with slice_input=True, got features={features}; "
                "lower k, or use slice_input=False"
            )
        self.features = features
        self.dim = dim
        self.k = k
        self.slice_input = slice_input
        self.messages = messages
        self.widths = [(features + k - 1 - part) // k if slice_input else features for part in range(k)]
        width, part = self.widths[0], dim // k
        share = torch.tensor([[1 / own if place < own else 0.0 for place in range(width)] for own in self.widths])
        self.register_buffer("share", share[:, None], persistent=False)  # weight of each value in the mean of its slice
        self.node, self.decoder = ParallelLinear(k, width, part), ParallelLinear(k, part, width)
        if messages:
            self.source, self.target = ParallelLinear(k, width, part), ParallelLinear(k, width, part)
            self.edge, self.mix = nn.Linear(part, 1), nn.Linear(2 * part, part)
            nn.init.kaiming_normal_(self.edge.weight, mode="fan_out")
            nn.init.eye_(self.mix.weight)
            nn.init.zeros_(self.edge.bias)
            nn.init.zeros_(self.mix.bias)

    def forward(
        self, f: Float[Tensor, "B F"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B k d"], Float[Tensor, "B k"]]:
        with full_precision(f):
            u = self.slices(at_least_float32(f))
            h = F.normalize(self.node(u), dim=2, eps=1e-6)
            rec = ((self.decoder(h.detach()) - u.detach()).square() * self.share.to(u)).sum(2)
            nodes = h.transpose(0, 1)
            o = self.relate(nodes, u.detach()) if self.messages else nodes
            return o.flatten(1), nodes, rec.T

    def slices(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "k B width"]:
        """Return the input of each part: its slice of the features, padded with a zero if it is shorter, or all features."""
        if not self.slice_input:
            return f.expand(self.k, *f.shape)
        return torch.stack([F.pad(u, (0, self.widths[0] - u.shape[1])) for u in f.split(self.widths, dim=1)])

    def relate(self, nodes: Float[Tensor, "B k d"], u: Float[Tensor, "k B width"]) -> Float[Tensor, "B k d"]:
        v, c = self.edge.weight.to(u)[0], self.edge.bias.to(u)
        s = ((self.source(u) @ v).T[:, :, None] - (self.target(u) @ v).T[:, None, :] + c).relu()
        w = s / s.sum(1, keepdim=True).clamp_min(1e-6)  # weights of the edges i -> j; no message if all are 0
        both = torch.cat([nodes, w.mT @ nodes], dim=2)
        return F.linear(both, self.mix.weight.to(u), self.mix.bias.to(u))


class ParallelLinear(nn.Module):
    """k linear layers in parallel, each with its own input."""

    def __init__(self, k: int, wide: int, narrow: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, wide, narrow) * (2 / narrow) ** 0.5)  # Kaiming normal, fan out
        self.bias = nn.Parameter(torch.zeros(k, 1, narrow))

    def forward(self, x: Float[Tensor, "k B wide"]) -> Float[Tensor, "k B narrow"]:
        return torch.baddbmm(self.bias.to(x), x, self.weight.to(x))


def require_multiple(owner: str, dim: int, k: int) -> None:
    if dim % k:
        wide = [number for number in (dim - dim % k, dim - dim % k + k) if number]
        fits = [number for number in range(1, dim + 1) if dim % number == 0]
        near = sorted(sorted(fits, key=lambda number: abs(number - k))[:2])
        raise LikewiseError(
            f"{owner}: dim must be a multiple of k, got dim={dim} and k={k}; "
            f"use dim={' or '.join(map(str, wide))}, or k={' or '.join(map(str, near))}"
        )
