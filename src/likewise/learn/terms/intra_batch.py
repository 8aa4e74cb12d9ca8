from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.argument_checks import Count, NotNegative, Positive, ShareBelowOne
from likewise.core.contracts import Term
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import Batch, LikewiseError, Output


class IntraBatch(Term):
    """Two classifiers: of embeddings alone, and of embeddings after they exchanged messages with the whole batch.

    Paper: Seidenschwarz et al., Learning Intra-Batch Connections for Deep Metric Learning, ICML 2021.
    Formula: J_i = a CE(W e_i / T, y_i) + CE(V norm(g_i) / T, y_i), CE with label smoothing; g = the batch after `layers` layers
        of self-attention over all its samples (residual, layer norm, two linear layers, residual, layer norm), from
        M z + m; e the raw embedding, z the unit one; norm a batch normalisation without shift
    Differs: nothing from the authors' code but the initial values of V and of the layers, which are those of PyTorch.
    Needs: `--loss-weight 0`, as this term has both losses. Messages are used in training only.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding, a multiple of `heads`; the run fills it in.
        layers: number of layers. Authors' code: 1; 2 for Cars196.
        heads: number of heads of the attention. Authors' code: 2 for CUB200, 8 for Cars196 and SOP.
        temperature: T. Authors' code: 0.2 for CUB200, 1/9 for Cars196, 0.6 for SOP.
        auxiliary: a. Authors' code: 1.
        smoothing: label smoothing. Ours: 0.1; the published code lacks the file that has it.
        dropout: share of values that are dropped in the layers. Authors' code: 0.1.
        concatenate: whether V reads the results of all layers, as the authors' code for Cars196 does, or of the last one.
        weight: factor of J.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    def __init__(
        self, classes: int, dim: int, layers: Count = 1, heads: Count = 2, temperature: Positive = 0.2,
        auxiliary: NotNegative = 1.0, smoothing: ShareBelowOne = 0.1, dropout: ShareBelowOne = 0.1, concatenate: bool = False,
        weight: float = 1.0, weighted: bool = False,
    ):  # fmt: skip
        super().__init__()
        if dim % heads:
            raise LikewiseError(f"IntraBatch: dim must be a multiple of heads, got dim={dim}, heads={heads}")
        self.classes = classes
        self.dim = dim
        self.layers = layers
        self.heads = heads
        self.temperature = temperature
        self.auxiliary = auxiliary
        self.smoothing = smoothing
        self.dropout = dropout
        self.concatenate = concatenate
        self.weight = weight
        self.weighted = weighted
        self.alone = nn.Linear(dim, classes)
        self.enter = nn.Linear(dim, dim)
        self.attention = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout, batch_first=True) for _ in range(layers)
        )
        width = dim * layers if concatenate else dim
        self.norm = nn.BatchNorm1d(width)
        self.norm.bias.requires_grad_(False)
        self.together = nn.Linear(width, classes, bias=False)

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        with full_precision(out.e):
            alone = self.alone(at_least_float32(out.e))
            together = self.together(self.normalise(self.exchange(at_least_float32(out.z))))
            return self.auxiliary * self.cross_entropy(alone, batch) + self.cross_entropy(together, batch)

    def exchange(self, z: Float[Tensor, "B D"]) -> Float[Tensor, "B W"]:
        """Return the embeddings after the samples of the batch exchanged messages."""
        x, found = self.enter(z)[None], []
        for layer in self.attention:
            x = layer(x)
            found.append(x[0])
        return torch.cat(found, 1) if self.concatenate else found[-1]

    def normalise(self, g: Float[Tensor, "B W"]) -> Float[Tensor, "B W"]:
        """Return the values normalised over the batch; by the running statistics if there is one sample."""
        if len(g) > 1:
            return self.norm(g)
        return F.batch_norm(g, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias)

    def cross_entropy(self, logits: Float[Tensor, "B C"], batch: Batch) -> Float[Tensor, "B"]:
        return F.cross_entropy(logits / self.temperature, batch.y, reduction="none", label_smoothing=self.smoothing)
