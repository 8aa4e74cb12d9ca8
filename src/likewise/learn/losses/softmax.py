from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.contracts import Loss
from likewise.core.distributed.sharded_proxies import nearest
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import Ref
from likewise.learn.losses._margin_softmax import margin_softmax


class Softmax(Loss):
    """Softmax cross-entropy of a linear classifier with bias on the raw embedding.

    Paper: Zheng et al., Deep Relational Metric Learning, ICCV 2021, the softmax baseline of table 3 in its supplement; also the
        classifier of Han et al., Co-teaching, NeurIPS 2018.
    Formula: l_i = -log( e^(w_y e_i + b_y) / sum_c e^(w_c e_i + b_c) ), e_i the embedding before the division by its length
    Differs: nothing in training. Evaluation ranks raw embeddings by the Euclidean distance, as for all losses on raw embeddings;
        the public code of Zheng et al. divides them by their lengths first. `ref` is not used: samples are compared with classes.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. With
        `TreeDepth` this is label smoothing over the tree (Bertinetto et al., Making Better Mistakes, CVPR 2020), and its
        `power` sets how sharp.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
    """

    input = "raw"
    can_shard = True
    relevance_inputs = ("targets",)
    graded = True

    def __init__(self, classes: int, dim: int):
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.proxies = linear_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = with_constant(at_least_float32(z))
            return margin_softmax(z, y, self.proxies, self.classes, 1.0, relevance=self.relevance, unit_proxies=False)

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"]:
        """Return the class with the highest probability for every sample."""
        return nearest(with_constant(z), self.proxies, self.classes, unit_proxies=False)


def linear_proxies(classes: int, dim: int) -> nn.Parameter:
    """Return a weight vector and, as its last coordinate, a bias per class, with the initial values of `torch.nn.Linear`.

    They are one matrix, so that a loss can shard its rows.
    """
    return nn.Parameter(torch.empty(classes, dim + 1).uniform_(-(dim**-0.5), dim**-0.5))


def with_constant(z: Float[Tensor, "B D"]) -> Float[Tensor, "B D1"]:
    """Return the embeddings with a last coordinate of 1, which the bias multiplies."""
    return F.pad(z, (0, 1), value=1.0)
