from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.argument_checks import NotNegative, Positive, PositiveOrInfinite, Share
from likewise.core.contracts import Confidence
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import LikewiseError, SampleWeights
from likewise.learn.confidence.thresholds import Average, mixture, otsu, weigh


class ProcSim(Confidence):
    """Lower sample weights for higher Proxy-NCA losses, above a threshold that splits the batch into clean and noisy samples.

    Paper: Barbany et al., ProcSim: Proxy-based Confidence for Robust Similarity Learning, WACV 2024.
    Formula: w_i = e^(-W( max(b, (l_i - tau) / lambda) / 2 )), l_i = -log softmax_c( 2 s <z_i, p_c / |p_c|> )[y_i]; W is Lambert's
    Differs: nothing that the paper states. Our choices where it states nothing: the variance in Otsu's criterion (`ddof`); the
        training of the proxies (by the unweighted mean l_i of detached embeddings, after the weights are computed); the threshold
        of the mixture (equal likelihood); the global average (read before it is updated). A sample whose loss is not finite gets
        weight 0; with fewer than four samples all weights are 1.
        Rows of table 1: base: this with `loss=MultiSimilarity(beta=40)` and a `LanguageGuidance` term. Threshold on MS:
        `score_by="loss"`. Proxy-NCA as DML loss: `loss=ProxyNCA(scale=1, positive_in_denominator=True)`, which trains its own
        proxies with the network. Regularization affected by confidence: `weighted=True` in that term. Global average,
        mixture: `threshold`. MS + PLG: no confidence; MS: no term. SuperLoss: `loss=PairSuperLoss()` alone.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        lam: lambda; a smaller value lowers the weights of high losses more. Infinity: all weights are 1. Paper: 1 (CUB200), 0.1
            (Cars196, SOP).
        scale: s of the proxy loss; another scale needs another lambda. Paper: 1.
        lr: learning rate of Adam for the proxies. Paper: 0.001.
        threshold: how tau is computed: from the batch by Otsu or by a mixture of two Gaussians, or as the mean over all batches.
        score_by: whether l_i is the proxy loss or the training loss.
        beta0: b; with 0 no weight is above 1. SuperLoss: -2/e = -0.7357588823428847.
        ddof: of the variance in Otsu's criterion: 0 as Otsu; 1, the unbiased variance, splits one batch in a hundred differently.
        min_separation: share of the variance that Otsu's split must explain; below it, all weights are 1. Not in the paper: 0.
        weigh_proxies: whether the sample weights also apply to the loss that trains the proxies.
    """

    proxies: Tensor
    adam_mean: Tensor
    adam_square: Tensor
    adam_steps: Tensor

    def __init__(
        self, classes: int, dim: int, lam: PositiveOrInfinite = 1.0, scale: Positive = 1.0, lr: NotNegative = 1e-3,
        threshold: Literal["otsu", "mean", "mixture"] = "otsu", score_by: Literal["proxy", "loss"] = "proxy",
        beta0: Annotated[float, Interval(ge=-2 / math.e, le=0)] = 0.0, ddof: Literal[0, 1] = 0, min_separation: Share = 0.0,
        weigh_proxies: bool = False,
    ):  # fmt: skip
        super().__init__()
        if threshold != "otsu" and (ddof or min_separation):
            raise LikewiseError(f"ProcSim: ddof and min_separation need threshold='otsu', got '{threshold}'; omit them")
        if score_by == "loss" and weigh_proxies:
            raise LikewiseError(
                "ProcSim: weigh_proxies needs score_by='proxy', got score_by='loss'; omit weigh_proxies"
            )
        self.classes = classes
        self.dim = dim
        self.lam = lam
        self.scale = scale
        self.lr = lr
        self.threshold = threshold
        self.score_by = score_by
        self.beta0 = beta0
        self.ddof = ddof
        self.min_separation = min_separation
        self.weigh_proxies = weigh_proxies
        self.needs_loss = score_by == "loss"
        self.uses_classes = score_by == "proxy"
        self.pending: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # the batch of this step, used by after_step
        if threshold == "mean":
            self.average = Average()
        if score_by == "proxy":  # buffers, so that the optimiser of the network does not update them
            self.register_buffer("proxies", torch.randn(classes, dim))
            self.register_buffer("adam_mean", torch.zeros(classes, dim))
            self.register_buffer("adam_square", torch.zeros(classes, dim))
            self.register_buffer("adam_steps", torch.zeros(()))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        if self.needs_loss and loss is None:
            raise LikewiseError("ProcSim: score_by='loss' needs the training loss, got None; pass one loss per sample")
        z = z.detach()
        each = (
            self._proxy_loss(z, y, self.proxies)
            if loss is None or not self.needs_loss
            else at_least_float32(loss.detach())
        )
        tau = self._find_threshold(each)
        w = weigh(each, tau, self.lam, self.beta0)
        if self.training:
            self.pending = z, y, each, w
        return SampleWeights(w=w, suspicion=each, threshold=tau.to(each))

    def after_step(self, step: int) -> None:
        if self.pending is None:
            return
        z, y, each, w = self.pending
        self.pending = None
        if self.threshold == "mean":
            self.average.add(each)
        if self.score_by == "proxy":
            sound = each.isfinite()
            self._adam(self._slope(z.where(sound[:, None], 0), y, w if self.weigh_proxies else sound.float(), sound))

    def _find_threshold(self, each: Float[Tensor, "B"]) -> Float[Tensor, ""]:
        if self.threshold == "otsu":
            return otsu(each, self.ddof, min_separation=self.min_separation)
        return mixture(each) if self.threshold == "mixture" else self.average(each)

    def _proxy_loss(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], proxies: Tensor) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            return F.cross_entropy(2 * self.scale * z @ F.normalize(proxies, dim=1).to(z).T, y.long(), reduction="none")

    def _slope(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], w: Float[Tensor, "B"], sound: Bool[Tensor, "B"]
    ) -> Float[Tensor, "C D"]:
        """Return the gradient of the mean proxy loss with respect to the proxies."""
        with torch.enable_grad():
            proxies = self.proxies.detach().requires_grad_()
            mean = (w * self._proxy_loss(z, y, proxies)).sum() / sound.sum().clamp_min(1)
            return torch.autograd.grad(mean, proxies)[0]

    def _adam(self, slope: Float[Tensor, "C D"], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        """Update the proxies by one Adam step. torch.optim.Adam would lose its tensors when the module changes its device."""
        self.adam_steps.add_(1)
        self.adam_mean.lerp_(slope, 1 - beta1)
        self.adam_square.lerp_(slope.square(), 1 - beta2)
        mean = self.adam_mean / -torch.expm1(self.adam_steps * math.log(beta1))
        root = (self.adam_square / -torch.expm1(self.adam_steps * math.log(beta2))).sqrt()
        self.proxies.sub_(self.lr * mean / (root + eps))
