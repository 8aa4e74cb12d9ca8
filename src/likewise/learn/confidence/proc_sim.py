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

MAX_FLAGGED_SHARE = 2 / 3
"""Largest share of a batch that is flagged by margins: proxies that have not learned yet would flag nearly all samples."""


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
        score_by: "proxy": l_i is the proxy loss; "loss": it is the training loss; "margin" (ours): it is by how much the logit of
            the nearest other proxy exceeds that of the own one, max(0, 2 s (max_c <z_i, p_c> - <z_i, p_y>)): samples that are
            nearest to their own proxy keep weight 1, so that right labels keep it even if a threshold always splits a batch, and
            tau is at least their lower third, so that a third of a batch keeps weight 1 while the proxies have not learned yet.
        beta0: b; with 0 no weight is above 1. SuperLoss: -2/e = -0.7357588823428847.
        ddof: of the variance in Otsu's criterion: 0 as Otsu; 1, the unbiased variance, splits one batch in a hundred differently.
        tau_factor: tau is this share of the threshold that was found. Paper: 1.
        weigh_proxies: whether the sample weights also apply to the loss that trains the proxies.
    """

    proxies: Tensor
    adam_mean: Tensor
    adam_square: Tensor
    adam_steps: Tensor

    def __init__(
        self, classes: int, dim: int, lam: PositiveOrInfinite = 1.0, scale: Positive = 1.0, lr: NotNegative = 1e-3,
        threshold: Literal["otsu", "mean", "mixture"] = "otsu", score_by: Literal["proxy", "margin", "loss"] = "proxy",
        beta0: Annotated[float, Interval(ge=-2 / math.e, le=0)] = 0.0, ddof: Literal[0, 1] = 0, tau_factor: Share = 1.0,
        weigh_proxies: bool = False,
    ):  # fmt: skip
        super().__init__()
        if threshold != "otsu" and ddof:
            raise LikewiseError(f"ProcSim: ddof needs threshold='otsu', got '{threshold}'; omit it")
        if score_by == "loss" and weigh_proxies:
            raise LikewiseError("ProcSim: weigh_proxies needs proxies, got score_by='loss'; omit weigh_proxies")
        self.classes = classes
        self.dim = dim
        self.lam = lam
        self.scale = scale
        self.lr = lr
        self.threshold = threshold
        self.score_by = score_by
        self.beta0 = beta0
        self.ddof = ddof
        self.tau_factor = tau_factor
        self.weigh_proxies = weigh_proxies
        self.needs_loss = score_by == "loss"
        self.uses_classes = score_by != "loss"
        self.pending: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # the batch of this step, used by after_step
        if threshold == "mean":
            self.average = Average()
        if self.uses_classes:  # buffers, so that the optimiser of the network does not update them
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
        each = self._score(z, y) if loss is None or not self.needs_loss else at_least_float32(loss.detach())
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
        if self.uses_classes:
            sound = each.isfinite()
            self._adam(self._slope(z.where(sound[:, None], 0), y, w if self.weigh_proxies else sound.float(), sound))

    def _score(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        if self.score_by == "proxy":
            return self._proxy_loss(z, y, self.proxies)
        logits = self._logits(z, self.proxies)
        own = logits.gather(1, y[:, None].long())
        other = logits.scatter(1, y[:, None].long(), -torch.inf).max(1, keepdim=True).values
        return (other - own).clamp_min(0)[:, 0]

    def _find_threshold(self, each: Float[Tensor, "B"]) -> Float[Tensor, ""]:
        if self.threshold == "otsu":
            tau = otsu(each, self.ddof)
        else:
            tau = mixture(each) if self.threshold == "mixture" else self.average(each)
        if self.score_by != "margin":
            return self.tau_factor * tau
        least = each.where(each.isfinite(), torch.nan).nanquantile(1 - MAX_FLAGGED_SHARE, interpolation="lower")
        tau = torch.maximum(self.tau_factor * tau, least)
        return tau.where(tau > 0, torch.inf)  # 0: no sample is nearer to another proxy, so none is flagged

    def _logits(self, z: Float[Tensor, "B D"], proxies: Tensor) -> Float[Tensor, "B C"]:
        with full_precision(z):
            z = at_least_float32(z)
            return 2 * self.scale * z @ F.normalize(proxies, dim=1).to(z).T

    def _proxy_loss(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], proxies: Tensor) -> Float[Tensor, "B"]:
        return F.cross_entropy(self._logits(z, proxies), y.long(), reduction="none")

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
