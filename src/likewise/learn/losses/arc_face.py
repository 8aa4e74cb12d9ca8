from __future__ import annotations

import math
from typing import Annotated

import torch
from annotated_types import Interval
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import MIN_SQUARED_DISTANCE
from likewise.core.types import Ref
from likewise.learn.losses._margin_softmax import margin_softmax, uniform_proxies

Angle = Annotated[float, Interval(ge=0, le=math.pi / 2)]


class ArcFace(Loss):
    """Softmax over cosines to one proxy per class, with a margin added to the angle to the proxy of the sample's own class.

    Paper: Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 6 (printed with a sum over the batch, not the classes).
    Formula: l_i = -log( e^(s cos(t_iy + m)) / (e^(s cos(t_iy + m)) + sum_{c != y} e^(s cos t_ic)) ), t_ic the angle to proxy c
    Differs: cos(t + m) is cos t cos m - sin t sin m, without arccos, so that the gradient is finite at t = 0. Beyond
        t + m = pi it is cos t - m sin m, as in the authors' code, so that the loss never falls with the angle. Negative
        cosines are used (the study's code sets them to 0). `ref` is not used: samples are compared with proxies.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. The
        margin is on each own logit (relevance from the threshold on). With `TreeDepth` this is label smoothing over the tree
        (Bertinetto et al., Making Better Mistakes, CVPR 2020).

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        scale: s. Paper: 64; 16 in Roth et al. 2020, taken here.
        margin: m, in radians. Paper: 0.5.
    """

    lr_factor = 50.0
    can_shard = True
    relevance_inputs = ("targets",)
    graded = True

    def __init__(self, classes: int, dim: int, scale: Positive = 16.0, margin: Angle = 0.5):
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.scale = scale
        self.margin = margin
        self.proxies = uniform_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        scale = self.scale
        return margin_softmax(
            z, y, self.proxies, self.classes, scale, lambda own: scale * self._with_margin(own / scale),
            relevance=self.relevance,
        )  # fmt: skip

    def _with_margin(self, cosine: Float[Tensor, "B c"]) -> Float[Tensor, "B c"]:
        """Return cos(t + margin), given cos t."""
        sine = (1 - cosine.square()).clamp_min(MIN_SQUARED_DISTANCE).sqrt()
        within = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine - self.margin * math.sin(self.margin)
        return torch.where(cosine >= -math.cos(self.margin), within, beyond)
