from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive, ShareBelowOne
from likewise.core.contracts import Loss
from likewise.core.distributed.sharded_proxies import nearest
from likewise.core.similarity import at_least_float32, exact_softplus, full_precision, unit_rows
from likewise.core.types import LikewiseError, Ref
from likewise.learn.losses._margin_softmax import uniform_proxies
from likewise.learn.losses.softmax import linear_proxies, with_constant


class ForwardCorrection(Loss):
    """Cross-entropy of the given label under the predicted true class and a known noise transition matrix.

    Paper: Patrini et al., Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach, CVPR 2017.
    Formula: l_i = -log sum_k p_ik T[k, y_i], T[k, j] = P(given j | true k); p_i = softmax_k(s_ik / temperature), or
        with temperature=None softmax_k(w_k e_i + b_k), e_i the raw embedding, as in the paper.
        Uniform noise: T[k, k] = 1 - share, else share / (C - 1), so l_i = -log((1 - share - share/(C-1)) p_iy + share/(C-1))
    Differs: with a temperature, p comes from cosines to one learned unit vector per class, as in `NormSoftmax`; without one,
        from a linear classifier, as in `Softmax`. `ref` is not used: samples are compared with proxies.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        share: noise rate of uniform noise, known or estimated. Not used if `transition` is given.
        transition: a .npy file with T, one row per true class; see `estimate_transition`. None: uniform noise.
        temperature: divisor of the cosines. Zhai & Wu: 0.05. None: a linear classifier on raw embeddings, as in the paper.
    """

    log_given: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        share: ShareBelowOne = 0.2,
        transition: str | None = None,
        temperature: Positive | None = 0.05,
    ):
        super().__init__()
        if share >= 1 - 1 / max(classes, 2):
            raise LikewiseError(
                f"ForwardCorrection: share must be below {1 - 1 / max(classes, 2):.4g} for {classes} classes, where labels carry "
                f"no information, got {share}"
            )
        self.classes = classes
        self.dim = dim
        self.share = share
        self.transition = transition
        self.temperature = temperature
        self.input = self.input_of({"temperature": temperature})
        self.proxies = linear_proxies(classes, dim) if temperature is None else uniform_proxies(classes, dim)
        given = None if transition is None else torch.as_tensor(read_transition(transition)).T
        least = torch.finfo(torch.float32).tiny  # in place of 0, whose logarithm is infinite
        # One row per given label. Not in the state, because the file is an argument of the loss.
        self.register_buffer("log_given", None if given is None else given.clamp_min(least).log(), persistent=False)

    @classmethod
    def input_of(cls, arguments: Mapping[str, Any]) -> Literal["unit", "raw"]:
        return "raw" if arguments["temperature"] is None else "unit"

    def logits(self, z: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """Return the logit of every class for every sample."""
        if self.temperature is None:
            return with_constant(z) @ self.proxies.to(z).T
        return (z / self.temperature) @ unit_rows(self.proxies).to(z).T

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"] | None:
        """Return the most probable true class of every sample."""
        if self.temperature is not None:
            return super().predict(z)
        return nearest(with_constant(z), self.proxies, self.classes, unit_proxies=False)

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            log_p = self.logits(z).log_softmax(1)
            if self.log_given is not None:
                # Checked here, because the number of classes may be a placeholder in the constructor.
                if len(self.log_given) != self.classes:
                    raise LikewiseError(
                        f"ForwardCorrection: transition must have a row for each of the {self.classes} classes, got "
                        f"{len(self.log_given)} in '{self.transition}'"
                    )
                return -(log_p + self.log_given[y].to(z)).logsumexp(1)
            log_p = log_p.gather(1, y[:, None]).squeeze(1)
            if not self.share:
                return -log_p
            wrong = self.share / (self.classes - 1)
            return -math.log(wrong) - exact_softplus(log_p + math.log((1 - self.share) / wrong - 1))


def read_transition(file: str) -> Float[np.ndarray, "C C"]:
    """Return the transition matrix in a .npy file; raise unless it is square and its rows are probabilities."""
    try:
        found = np.asarray(np.load(file, allow_pickle=False))
    except Exception as error:  # numpy raises many kinds for damaged files
        raise LikewiseError(f"ForwardCorrection: transition must be a .npy file, got '{file}' ({error})") from None
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise LikewiseError(
            f"ForwardCorrection: transition must have a row and a column for each class, got shape {found.shape} in '{file}'"
        )
    if not ((found >= 0).all() and np.allclose(found.sum(1), 1, atol=1e-3)):
        raise LikewiseError(
            f"ForwardCorrection: rows of transition must be probabilities that sum to 1, got other values in '{file}'; "
            "row k is the probability of each given label for true class k"
        )
    return found.astype(np.float32)


def estimate_transition(p: Float[np.ndarray, "N C"], percentile: float | None = None) -> Float[np.ndarray, "C C"]:
    """Return an estimate of T from the predictions of a network that was trained with the noisy labels.

    Row k is the prediction for the sample with the highest probability of class k. Train twice: first with `NormSoftmax()`, whose
    predictions are softmax(cosines to the proxies / temperature), or with `Softmax()`; store the result with
    `np.save("transition.npy", T)`; then train with `ForwardCorrection(transition="transition.npy")`.

    Args:
        p: predicted probabilities of the classes, one row per training sample.
        percentile: samples at or above this percentile of a column are ignored as outliers. Paper: 97; None: no outliers.
    """
    sure = p.copy()
    if percentile is not None:
        if not 0 < percentile <= 100:
            raise LikewiseError(f"estimate_transition: percentile must be above 0 and up to 100, got {percentile}")
        sure[sure >= np.percentile(sure, percentile, axis=0, method="higher")] = 0
    rows = p[sure.argmax(0)]
    return rows / rows.sum(1, keepdims=True)
