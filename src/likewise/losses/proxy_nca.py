from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.contracts import Loss
from likewise.losses._margin_softmax import check_scale, margin_softmax
from likewise.types import LikewiseError, Ref


class ProxyNCA(Loss):
    """Pull a sample to its class's learned unit vector and push it from those of the other classes.

    Paper: Movshovitz-Attias et al., No Fuss Distance Metric Learning using Proxies, ICCV 2017;
        with `positive_in_denominator`: Teh et al., ProxyNCA++, ECCV 2020.
    Formula: l_i = -log( e^(-q_iy) / sum_{c != y} e^(-q_ic) ), q_ic = |k z_i - k p_c|^2 = 2 k^2 (1 - s_ic)
    Differs: nothing. Without the own proxy in the denominator the number may be negative, which is right. Distances are squared
        (the print of Roth et al. 2020 drops the square). `ref` is not used: the classes are the reference.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        scale: k, the radius of the sphere that samples and proxies lie on. Paper: 1; 3 in ProxyNCA++ (its temperature 1/9) and
            in Roth et al. 2020, taken here.
        positive_in_denominator: let the sum run over all classes, the own one included, as in ProxyNCA++.
    """

    lr_factor = 50.0
    can_shard = True

    def __init__(self, classes: int, dim: int, scale: float = 3.0, positive_in_denominator: bool = False):
        super().__init__()
        check_scale("ProxyNCA", scale)
        if classes < 2 and not positive_in_denominator:
            raise LikewiseError(
                f"ProxyNCA: it compares with the proxies of other classes, got classes={classes}; give it two or more"
            )
        self.classes = classes
        self.dim = dim
        self.scale = scale
        self.positive_in_denominator = positive_in_denominator
        self.proxies = nn.Parameter(torch.randn(classes, dim) / 8)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        scale, with_own = 2 * self.scale**2, self.positive_in_denominator
        return margin_softmax(z, y, self.proxies, self.classes, scale, with_own=with_own)
