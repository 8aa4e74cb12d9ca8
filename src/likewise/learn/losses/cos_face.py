from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.types import Ref
from likewise.learn.losses._margin_softmax import margin_softmax, uniform_proxies


class CosFace(Loss):
    """Softmax over cosines to one proxy per class, with a margin subtracted from the cosine of the sample's own class.

    Paper: Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, CVPR 2018.
    Formula: l_i = -log( e^(s (s_iy - m)) / (e^(s (s_iy - m)) + sum_{c != y} e^(s s_ic)) )
    Differs: nothing. `ref` is not used: samples are compared with proxies.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. The
        margin is on each own logit (relevance from the threshold on).

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        scale: s, factor of the cosines. Paper: 64.
        margin: m, subtracted from the cosine. Paper: 0.35.
    """

    lr_factor = 1.0
    can_shard = True
    relevance_inputs = ("targets",)
    graded = True

    def __init__(
        self, classes: int, dim: int, scale: Positive = 64.0, margin: Annotated[float, Interval(ge=0, lt=2)] = 0.35
    ):
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.scale = scale
        self.margin = margin
        self.proxies = uniform_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        offset = self.scale * self.margin
        return margin_softmax(
            z, y, self.proxies, self.classes, self.scale, lambda own: own - offset, relevance=self.relevance
        )
