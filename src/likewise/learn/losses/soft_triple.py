from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.argument_checks import Count, NotNegative, Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, full_precision, is_traced, unit_rows, with_known_gradient
from likewise.core.types import Ref
from likewise.learn.losses._margin_softmax import target_cross_entropy


class SoftTriple(Loss):
    """Softmax over similarities to several learned centres per class, of which the nearest has the largest weight.

    Paper: Qian et al., SoftTriple Loss: Deep Metric Learning Without Triplet Sampling, ICCV 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eqs. 16 to 18 (printed without a factor).
    Formula: l_i = -log( e^(a (S_iy - m)) / (e^(a (S_iy - m)) + sum_{c != y} e^(a S_ic)) ) + tau R,
        S_ic = sum_k softmax_k(s_ick / gamma) s_ick, R = 1/(C K (K-1)) sum_c sum_{k < l} sqrt(2 + 1e-5 - 2 w_ck w_cl)
    Differs: nothing. R belongs to no sample and is added to the value of each, so that the mean is the paper's; with one centre
        per class there is no R. `ref` is not used: samples are compared with centres.
    Graded: cross-entropy with the targets q_ic = r_ic / sum_k r_ik; a sample with several labels is pulled by each. The
        margin is on each own logit (relevance from the threshold on).

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        per_class: K, centres of a class; row k * classes + c of `centres` is the k-th of class c. Paper: 10; 2 in Roth et al.
        scale: a (the paper's lambda). Paper: 20; 8 in Roth et al. 2020.
        gamma: temperature of the softmax over the centres of a class. Paper: 0.1.
        tau: weight of R, which merges centres of a class. Paper: 0.2.
        margin: m (the paper's delta). Paper: 0.01.
    """

    lr_factor = 100.0
    relevance_inputs = ("targets",)
    graded = True

    def __init__(
        self, classes: int, dim: int, per_class: Count = 10, scale: Positive = 20.0, gamma: Positive = 0.1,
        tau: NotNegative = 0.2, margin: NotNegative = 0.01,
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.per_class = per_class
        self.scale = scale
        self.gamma = gamma
        self.tau = tau
        self.margin = margin
        bound = (classes * per_class) ** -0.5
        self.centres = nn.Parameter(torch.empty(per_class * classes, dim).uniform_(-bound, bound))

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        apart = _apart if is_traced() else _Apart.apply
        with full_precision(z):
            z = at_least_float32(z)
            centres = unit_rows(self.centres).to(z)
            sim = (z @ centres.T).view(len(z), self.per_class, self.classes)
            logits = self.scale * with_known_gradient(_pool, _fast_pool, sim, self.gamma)
            each = self._cross_entropy(logits, y)
            if self.per_class == 1 or not self.tau:
                return each
            pairs = self.classes * self.per_class * (self.per_class - 1)
            return each + self.tau / pairs * apart(centres.view(self.per_class, self.classes, self.dim))

    def _cross_entropy(self, logits: Float[Tensor, "B C"], y: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        offset = self.scale * self.margin
        if self.relevance is not None:
            r = self.relevance.targets(y)
            return target_cross_entropy(logits, r, self.relevance.threshold, lambda own: own - offset)
        own = logits.gather(1, y[:, None]) - offset
        return F.cross_entropy(logits.scatter(1, y[:, None], own), y, reduction="none")


def _pool(sim: Float[Tensor, "B K C"], gamma: float) -> Float[Tensor, "B C"]:
    """Return the similarity to every class: a softmax-weighted mean over its centres."""
    return ((sim / gamma).softmax(1) * sim).sum(1)


def _fast_pool(sim: Float[Tensor, "B K C"], gamma: float) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B K C"]]:
    """Return the result of `_pool` and its gradient."""
    share = (sim / gamma).softmax(1)
    pooled = (share * sim).sum(1)
    return pooled, share.mul_((sim - pooled[:, None]).div_(gamma).add_(1))


def _apart(w: Float[Tensor, "K C D"]) -> Float[Tensor, ""]:
    """Return the sum of the distances between all pairs of centres of a class, over all classes."""
    w = w.transpose(0, 1)
    return (2 + 1e-5 - 2 * w @ w.mT).sqrt().triu(1).sum()


class _Apart(torch.autograd.Function):
    """`_apart` with its own gradient: minus the sum of the other centres, each divided by its distance."""

    @staticmethod
    def forward(ctx, w: Tensor) -> Tensor:
        of_class = w.transpose(0, 1)
        between = (2 + 1e-5 - 2 * of_class @ of_class.mT).sqrt_()
        slope = between.reciprocal().triu(1)
        ctx.save_for_backward(w, slope + slope.mT)
        return between.triu_(1).sum()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        w, slope = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.autograd.grad(_apart(w), w, grad, create_graph=True)[0]
        return (-grad * slope @ w.transpose(0, 1)).transpose(0, 1)
