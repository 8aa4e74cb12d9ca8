from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import Ref
from likewise.learn.losses._margin_softmax import margin_softmax, uniform_proxies


class NormSoftmax(Loss):
    """Softmax cross-entropy over cosines to one proxy per class, with a temperature.

    Paper: Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, BMVC 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 19 (printed without a term of the denominator).
    Formula: l_i = -log( e^(s_iy / T) / sum_c e^(s_ic / T) )
    Differs: nothing. `ref` is not used: samples are compared with proxies.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. With
        `TreeDepth` this is label smoothing over the tree (Bertinetto et al., Making Better Mistakes, CVPR 2020), and its
        `power` sets how sharp.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        temperature: T. Paper: 0.05.
    """

    lr_factor = 1.0
    can_shard = True
    relevance_inputs = ("targets",)
    graded = True

    def __init__(self, classes: int, dim: int, temperature: Positive = 0.05):
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.temperature = temperature
        self.proxies = uniform_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z) / self.temperature
            return margin_softmax(z, y, self.proxies, self.classes, 1.0, relevance=self.relevance)
