from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.distributed.sharded_proxies import logit_cross_entropy
from likewise.core.similarity import at_least_float32, distance, full_precision, unit_rows
from likewise.core.types import LikewiseError, Ref
from likewise.learn.losses._margin_softmax import margin_softmax, target_cross_entropy


class ProxyNCA(Loss):
    """Pulls a sample to the proxy of its class and pushes it from the proxies of all other classes.

    Paper: Movshovitz-Attias et al., No Fuss Distance Metric Learning using Proxies, ICCV 2017;
        with `positive_in_denominator`: Teh et al., ProxyNCA++, ECCV 2020.
    Formula: l_i = -log( e^(-q_iy) / sum_{c != y} e^(-q_ic) ), q_ic = |k z_i - k p_c|^2 = 2 k^2 (1 - s_ic)
    Differs: nothing. Without the proxy of the own class in the denominator, values may be negative. Roth et al. 2020, eq. 13,
        print distances without the square and without k: `squared=False, scale=1`, then q_ic = |k z_i - k p_c|. `ref` is not
        used: samples are compared with proxies.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. Without
        own proxies in the denominator, all with a relevance from the threshold on are left out.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        scale: k, radius of the sphere on which samples and proxies lie. Paper: 1; 3 in ProxyNCA++ (its temperature 1/9) and
            in Roth et al. 2020, taken here.
        positive_in_denominator: whether the sum includes the sample's own class, as in ProxyNCA++.
        squared: whether distances are squared. Paper: True; print of Roth et al. 2020: False, which --shard-proxies refuses.
    """

    lr_factor = 50.0
    can_shard = True
    relevance_inputs = ("targets",)
    graded = True

    def __init__(
        self, classes: int, dim: int, scale: Positive = 3.0, positive_in_denominator: bool = False, squared: bool = True
    ):
        super().__init__()
        if classes < 2 and not positive_in_denominator:
            raise LikewiseError(
                f"ProxyNCA: classes must be 2 or more, got classes={classes}; use positive_in_denominator=True for a single class"
            )
        self.classes = classes
        self.dim = dim
        self.scale = scale
        self.positive_in_denominator = positive_in_denominator
        self.squared = squared
        self.can_shard = squared
        self.proxies = nn.Parameter(torch.randn(classes, dim) / 8)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        scale, with_own = 2 * self.scale**2, self.positive_in_denominator
        if self.squared:
            return margin_softmax(z, y, self.proxies, self.classes, scale, with_own=with_own, relevance=self.relevance)
        with full_precision(z):
            z = at_least_float32(z)
            apart = distance(z @ unit_rows(self.proxies).to(z).T)
            if self.relevance is not None:
                r = self.relevance.targets(y)
                return target_cross_entropy(-self.scale * apart, r, self.relevance.threshold, with_own=with_own)
            return logit_cross_entropy(-self.scale * apart, y, with_own=with_own)
