from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.losses._margin_softmax import check_scale, margin_softmax, uniform_proxies
from likewise.similarity import MIN_SQUARED_DISTANCE
from likewise.types import LikewiseError, Ref


class ArcFace(Loss):
    """Classify by the angle to one learned unit vector per class, with a margin added to the angle to the own one.

    Paper: Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 6 (whose print sums over the batch, not the classes).
    Formula: l_i = -log( e^(s cos(t_iy + m)) / (e^(s cos(t_iy + m)) + sum_{c != y} e^(s cos t_ic)) ), t_ic the angle to proxy c
    Differs: cos(t + m) is cos t cos m - sin t sin m, without arccos, so that the gradient stays finite on the own proxy. Where
        t + m passes pi it is cos t - m sin m, as in the authors' code, so that a larger angle never costs less. Negative
        cosines count (the study's code cuts them to 0). `ref` is not used: the classes are the reference.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        scale: s. Paper: 64; 16 in Roth et al. 2020, taken here.
        margin: m, in radians. Paper: 0.5.
    """

    lr_factor = 50.0
    can_shard = True

    def __init__(self, classes: int, dim: int, scale: float = 16.0, margin: float = 0.5):
        super().__init__()
        check_scale("ArcFace", scale)
        if not 0 <= margin <= math.pi / 2:
            raise LikewiseError(
                f"ArcFace: margin is an angle in radians between 0 and pi/2, got {margin}; 28.6 degrees are 0.5"
            )
        self.classes = classes
        self.dim = dim
        self.scale = scale
        self.margin = margin
        self.proxies = uniform_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        scale = self.scale
        return margin_softmax(z, y, self.proxies, self.classes, scale, lambda own: scale * self._with_margin(own / scale))

    def _with_margin(self, cosine: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
        """The cosine of an angle, after the margin is added to it."""
        sine = (1 - cosine.square()).clamp_min(MIN_SQUARED_DISTANCE).sqrt()
        within = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine - self.margin * math.sin(self.margin)
        return torch.where(cosine >= -math.cos(self.margin), within, beyond)
