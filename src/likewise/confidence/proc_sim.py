from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.confidence.thresholds import Average, mixture, otsu, weigh
from likewise.contracts import Confidence
from likewise.similarity import at_least_float32, full_precision
from likewise.types import LikewiseError, SampleWeights


class ProcSim(Confidence):
    """Believe a label less, the further its Proxy-NCA loss lies above a threshold that splits the batch into clean and noisy.

    Paper: Barbany et al., ProcSim: Proxy-based Confidence for Robust Similarity Learning, WACV 2024.
    Formula: w_i = e^(-W( max(b, (l_i - tau) / lambda) / 2 )), l_i = -log softmax_c( 2 s <z_i, p_c / |p_c|> )[y_i]; W is Lambert's
    Differs: nothing that is printed. Left open there, and chosen here: the variance in Otsu's criterion (`ddof`); what trains the
        proxies (the mean l_i of detached embeddings, unweighted, after the weights were found); the mixture's threshold (equal
        likelihood); the global average (used, then renewed). A loss that is not finite weighs 0; fewer than four weigh 1.
        Rows of table 1: base: this with `loss=MultiSimilarity(beta=40)` and a `LanguageGuidance` term. Threshold on MS:
        `score_by="loss"`. Proxy-NCA as DML loss: `loss=ProxyNCA(scale=1, positive_in_denominator=True)`, whose proxies are its
        own and learn with the network. Regularization affected by confidence: `trusted=True` in that term. Global average,
        mixture: `threshold`. MS + PLG: no confidence; MS: no term. SuperLoss: `loss=PairSuperLoss()` alone.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        lam: lambda; the smaller, the harder. At infinity all weigh 1. Paper: 1 (CUB200), 0.1 (Cars196, SOP).
        scale: s of the proxy loss; lambda must be chosen anew with it. Paper: 1.
        lr: learning rate of the proxies' own Adam. Paper: 0.001.
        threshold: how tau is found: in the batch by Otsu or by a mixture of two Gaussians, or as the mean over all batches.
        score_by: l_i is the proxy loss, or the training loss itself.
        beta0: b; 0 lets nobody weigh more than 1. SuperLoss: -2/e = -0.7357588823428847.
        ddof: of the variance in Otsu's criterion. 0 is Otsu's; 1, the unbiased one, splits a batch in a hundred otherwise.
        min_separation: share of the variance that Otsu's split must explain, else all weigh 1. Not in the paper: 0.
        weigh_proxies: let the weights apply to what the proxies learn from, too.
    """

    proxies: Tensor
    adam_mean: Tensor
    adam_square: Tensor
    adam_steps: Tensor

    def __init__(
        self, classes: int, dim: int, lam: float = 1.0, scale: float = 1.0, lr: float = 1e-3,
        threshold: Literal["otsu", "mean", "mixture"] = "otsu", score_by: Literal["proxy", "loss"] = "proxy",
        beta0: float = 0.0, ddof: int = 0, min_separation: float = 0.0, weigh_proxies: bool = False,
    ):  # fmt: skip
        super().__init__()
        if lam <= 0 or scale <= 0 or lr < 0:
            raise LikewiseError(
                f"ProcSim: lam and scale must be above 0 and lr 0 or more, got lam={lam}, scale={scale}, lr={lr}"
            )
        if threshold not in ("otsu", "mean", "mixture") or score_by not in ("proxy", "loss"):
            raise LikewiseError(
                "ProcSim: threshold is 'otsu', 'mean' or 'mixture' and score_by 'proxy' or 'loss', "
                f"got threshold='{threshold}', score_by='{score_by}'"
            )
        if not -2 / math.e <= beta0 <= 0:
            raise LikewiseError(f"ProcSim: beta0 must be between -2/e = {-2 / math.e:.4f} and 0, got {beta0}")
        if ddof not in (0, 1) or not 0 <= min_separation <= 1:
            raise LikewiseError(
                f"ProcSim: ddof is 0 or 1 and min_separation a share in [0, 1], got {ddof} and {min_separation}"
            )
        if threshold != "otsu" and (ddof or min_separation):
            raise LikewiseError(f"ProcSim: ddof and min_separation belong to threshold='otsu', got '{threshold}'")
        if score_by == "loss" and weigh_proxies:
            raise LikewiseError("ProcSim: with score_by='loss' there are no proxies; leave weigh_proxies out")
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
        self.seen: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # the batch of this step, until it is over
        if threshold == "mean":
            self.average = Average()
        if score_by == "proxy":  # buffers, so that the network's optimiser never touches them
            self.register_buffer("proxies", torch.randn(classes, dim))
            self.register_buffer("adam_mean", torch.zeros(classes, dim))
            self.register_buffer("adam_square", torch.zeros(classes, dim))
            self.register_buffer("adam_steps", torch.zeros(()))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        if self.needs_loss and loss is None:
            raise LikewiseError(
                "ProcSim(score_by='loss') judges by the training loss, got None; pass one number per sample"
            )
        z = z.detach()
        each = (
            self._proxy_loss(z, y, self.proxies)
            if loss is None or not self.needs_loss
            else at_least_float32(loss.detach())
        )
        tau = self._find_threshold(each)
        w = weigh(each, tau, self.lam, self.beta0)
        if self.training:
            self.seen = z, y, each, w
        return SampleWeights(w=w, suspicion=each, threshold=tau.to(each))

    def after_step(self, step: int) -> None:
        if self.seen is None:
            return
        z, y, each, w = self.seen
        self.seen = None
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
        """By how much the mean proxy loss changes with the proxies."""
        with torch.enable_grad():
            proxies = self.proxies.detach().requires_grad_()
            mean = (w * self._proxy_loss(z, y, proxies)).sum() / sound.sum().clamp_min(1)
            return torch.autograd.grad(mean, proxies)[0]

    def _adam(self, slope: Float[Tensor, "C D"], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        """One step of Adam at its defaults; torch's own would lose its tensors when the module moves to a device."""
        self.adam_steps.add_(1)
        self.adam_mean.lerp_(slope, 1 - beta1)
        self.adam_square.lerp_(slope.square(), 1 - beta2)
        mean = self.adam_mean / -torch.expm1(self.adam_steps * math.log(beta1))
        root = (self.adam_square / -torch.expm1(self.adam_steps * math.log(beta2))).sqrt()
        self.proxies.sub_(self.lr * mean / (root + eps))
