from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import NotNegative, Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, full_precision, log_sum_and_powers, log_weights, unit_rows
from likewise.core.types import Ref


class ProxyAnchor(Loss):
    """Proxies as anchors: each proxy pulls the samples of its class and pushes all others, hard samples most.

    Paper: Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020.
    Formula: L = 1/|C+| sum_{c in C+} log(1 + sum_{i in c} e^(-a (s_ic - m)))
               + 1/C sum_c log(1 + sum_{i not in c} e^(a (s_ic + m)))
    Differs: the paper defines one value per proxy. Here it is divided among the samples in proportion to their
        exponentials, as constants; mean and gradient over the batch are the paper's. A sample of weight 0 is still in the
        sums of the proxies, as a positive or negative of other samples is in a pair loss. `ref` is not used: samples are
        compared with proxies.
    Graded: a proxy pulls the samples whose relevance r to it is the threshold or more, with the weight r, and pushes the others
        with 1 - r; with several labels, a sample is pulled by the proxy of each of its labels.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        alpha: a, sharpness. Paper: 32.
        margin: m. Paper: 0.1.
    """

    lr_factor = 100.0
    relevance_inputs = ("targets",)
    graded = True

    def __init__(self, classes: int, dim: int, alpha: Positive = 32.0, margin: NotNegative = 0.1):
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.alpha = alpha
        self.margin = margin
        self.proxies = nn.Parameter(nn.init.kaiming_normal_(torch.empty(classes, dim), mode="fan_out"))

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            sim = unit_rows(self.proxies).to(z) @ z.T
            pull, push = self.margin - sim, sim + self.margin
            if self.relevance is None:
                own = torch.arange(self.classes, device=y.device)[:, None] == y[None, :]
                mask = torch.cat([own, ~own])
            else:  # the logarithm of a weight is added to the exponent of its pair
                r = self.relevance.targets(y).T.to(z)
                own = r >= self.relevance.threshold
                mask = torch.cat([own, ~own])
                log_r, log_rest = log_weights(r)
                pull, push = pull.add(log_r, alpha=1 / self.alpha), push.add(log_rest, alpha=1 / self.alpha)
            # Pull and push in one matrix: half as many kernels, which matters if they are small.
            of_proxy, power = log_sum_and_powers(torch.cat([pull, push]), mask, self.alpha)
            share = of_proxy / power.sum(1).clamp_min(torch.finfo(z.dtype).tiny)
            by_pull, by_push = share.split(self.classes)
            return power.T @ torch.cat([by_pull * len(z) / own.any(1).sum(), by_push * (len(z) / self.classes)])
