from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.distributed.sharded_proxies import cross_entropy
from likewise.losses._margin_softmax import uniform_proxies
from likewise.similarity import at_least_float32, full_precision
from likewise.types import LikewiseError, Ref


class NormSoftmax(Loss):
    """Softmax cross-entropy over cosines to one proxy per class, with a temperature.

    Paper: Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, BMVC 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 19 (printed without a term of the denominator).
    Formula: l_i = -log( e^(s_iy / T) / sum_c e^(s_ic / T) )
    Differs: nothing. `ref` is not used: samples are compared with proxies.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        temperature: T. Paper: 0.05.
    """

    lr_factor = 1.0
    can_shard = True

    def __init__(self, classes: int, dim: int, temperature: float = 0.05):
        super().__init__()
        if temperature <= 0:
            raise LikewiseError(f"NormSoftmax: temperature must be above 0, got {temperature}")
        self.classes = classes
        self.dim = dim
        self.temperature = temperature
        self.proxies = uniform_proxies(classes, dim)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            return cross_entropy(at_least_float32(z) / self.temperature, y, self.proxies, self.classes)
