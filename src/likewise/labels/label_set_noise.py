"""Noise of label sets: every label is missing in some samples that have it, and superfluous in some that do not.

The shares of missing and of superfluous labels and the weights of the evidence are fitted by the likelihood of given labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor

from likewise.labels.label_set_evidence import LabelSetEvidence, weigh_labels

MAX_FITTED_ENTRIES = 2**20
"""Maximum number of entries (rows x labels) that the noise is fitted on; of more rows, some are drawn at random."""

MAX_SELECTION_ENTRIES = 2**17
"""Maximum number of entries that the scaling and the shrinkage are chosen by."""

MAX_NOISE_SHARE = 0.5
"""Upper bound of the share of missing labels among those that are true, and of superfluous ones among those that are not."""

START_SHARES = (0.05, 0.005)
"""Missing and superfluous share that the fit starts from, and the centres of their priors: people rather forget a label."""

PRIOR_WIDTHS = {"scale": 0.25, "bias": 3.0, "missing": 0.25, "superfluous": 0.25, "shares": 0.5}
"""Standard deviation of a label's values around those of all labels, in logarithms and log odds; of few samples, a label has
nearly the values of all labels."""

PARAMETER_LIMIT = 12.0
"""Largest absolute value of a parameter."""

LIKELIHOOD_TOLERANCE, SELECTION_TOLERANCE = 1e-6, 1e-4
"""Relative change of the log likelihood below which the fit stops, and below which it stops where only settings are compared."""

MAX_STEPS = 200
"""Maximum number of steps of the fit."""


class LabelSetNoise(NamedTuple):
    """Fitted weights of the evidence, and the shares of missing and superfluous labels, for every label."""

    weight: Float[Tensor, "M L"]  # of every table of scores
    bias: Float[Tensor, "L"]
    missing: Float[Tensor, "L"]  # P(not given | the sample has the label)
    superfluous: Float[Tensor, "L"]  # P(given | the sample has it not)
    gain: Float[
        Tensor, "L"
    ]  # log likelihood of the given labels minus that by the frequency of the label, sum over samples
    fitted: int  # number of samples that it was fitted on

    @property
    def informative(self) -> Bool[Tensor, "L"]:
        """Whether the scores explain a label better than its frequency does, beyond the gain of fitting."""
        return self.gain > 4 * math.log(self.fitted)

    def probabilities(self, scores: Float[Tensor, "M b L"]) -> Float[Tensor, "b L"]:
        """Return P(the sample has the label | evidence)."""
        return torch.sigmoid(torch.einsum("ml,mbl->bl", self.weight.to(scores), scores) + self.bias.to(scores))

    def wrong(self, scores: Float[Tensor, "M b L"], has: Float[Tensor, "b L"]) -> Float[Tensor, "b L"]:
        """Return P(the given state is wrong | evidence, given state): a given label is superfluous, an absent one missing.

        Formula: p = P(has the label | evidence), m, s the shares of missing and superfluous labels;
            given: (1 - p) s / ((1 - p) s + p (1 - m)), not given: p m / (p m + (1 - p) (1 - s))
        """
        p, m, s = self.probabilities(scores), self.missing.to(scores), self.superfluous.to(scores)
        given, absent = has > 0.5, 1 - p
        error = torch.where(given, absent * s, p * m)
        right = torch.where(given, p * (1 - m), absent * (1 - s))
        return error / (error + right).clamp_min(1e-30)


def judge_labels(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"], *, folds: int = 10, setting: tuple[bool, float] | None = None,
    seed: int = 0, group: Int[Tensor, "N"] | None = None,
) -> tuple[LabelSetEvidence, LabelSetNoise]:  # fmt: skip
    """Return the evidence about all labels of all samples, and the noise that was fitted to it.

    A first fit by densities and votes finds the labels that are probably right; these serve as evidence about the other labels.

    Args:
        has: 1 where a sample was given a label, otherwise 0.
        folds, setting, seed, group: as in `weigh_labels`.
    """
    each, _ = weigh_labels(
        x, has, lambda one: selection_gain(one, seed), folds=folds, setting=setting, seed=seed, group=group
    )
    first = fit_label_noise(each, seed=seed)
    wrong = torch.cat([first.wrong(each.scores(rows), has[rows]) for rows in each.blocks()])
    wrong = wrong * first.informative.to(wrong)
    both = each.with_related((has - wrong).abs())
    return (both, fit_label_noise(both, seed=seed)) if both.related is not None else (each, first)


def selection_gain(each: LabelSetEvidence, seed: int = 0) -> float:
    """Return roughly how well evidence explains the given labels, in nats, for a choice between several settings."""
    return float(fit_label_noise(each, MAX_SELECTION_ENTRIES, seed, SELECTION_TOLERANCE).gain.sum())


def fit_label_noise(
    each: LabelSetEvidence, most: int = MAX_FITTED_ENTRIES, seed: int = 0, tolerance: float = LIKELIHOOD_TOLERANCE
) -> LabelSetNoise:
    """Return the weights and the noise shares under which the given labels are most likely.

    Formula: P(given) = p (1 - m_l) + (1 - p) s_l, p = sigmoid(e^(c_l) sum_k a_k score_k + b_l); a, b, c, m and s maximise the
        likelihood times normal priors of a label's values around those of all labels (`PRIOR_WIDTHS`).

    Args:
        most: maximum number of entries to fit on.
        seed: of the rows that are drawn if there are more.
        tolerance: relative change of the log likelihood below which the fit stops.
    """
    has, rows = each.has, torch.arange(len(each.x), device=each.x.device)
    limit = max(200, most // each.labels)
    if len(rows) > limit:
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:limit]
        rows = drawn.sort().values.to(rows.device)
    return _Likelihood(each.scores(rows), has[rows], has.mean(0)).maximum(tolerance)


class _Likelihood:
    """Log posterior of the parameters of `LabelSetNoise`, in float64, with its gradient by hand: autograd takes longer."""

    def __init__(self, scores: Float[Tensor, "M n L"], has: Float[Tensor, "n L"], share: Float[Tensor, "L"]):
        device = "cpu" if scores.device.type == "mps" else scores.device  # MPS has no float64
        scores, share = (t.to(device, torch.float64) for t in (scores, share))
        self.given = has.to(device) > 0.5
        least = 0.5 / len(has)
        self.centre = torch.logit(share, eps=least)
        self.middle = scores.mean(1)
        self.scale = (scores - self.middle[:, None]).square().mean((1, 2)).sqrt().clamp_min(1e-12)
        self.scores = (scores - self.middle[:, None]) / self.scale[:, None, None]
        own = share.clamp(least, 1 - least)
        self.chance = torch.where(self.given, own.log(), (1 - own).log()).sum(0)
        self.tables, self.labels = len(scores), has.shape[1]
        label = torch.full((self.labels,), 1.0, dtype=torch.float64)
        width = PRIOR_WIDTHS
        self.width = torch.cat(
            [torch.full((self.tables,), math.inf, dtype=torch.float64), torch.full((2,), width["shares"]).double(),
             width["scale"] * label, width["bias"] * label, width["missing"] * label, width["superfluous"] * label]
        ).to(device)  # fmt: skip
        zero = torch.zeros_like(self.centre)
        self.start = torch.cat(
            [
                zero.new_full((self.tables,), math.log(1.5 / self.tables)),
                zero.new_zeros(2),
                zero,
                self.centre,
                zero,
                zero,
            ]
        )

    def maximum(self, tolerance: float) -> LabelSetNoise:
        """Return the most likely values; the fit stops where the log likelihood changes by less than this share."""
        limit = (-PARAMETER_LIMIT, PARAMETER_LIMIT)
        with threadpool_limits(1, "blas"):  # threads only wait for each other on vectors of some hundred numbers
            found = minimize(
                self.objective, self.start.cpu().numpy(), method="L-BFGS-B", jac=True, bounds=[limit] * len(self.start),
                options={"ftol": tolerance, "maxiter": MAX_STEPS},
            )  # fmt: skip
        values = torch.as_tensor(found.x).to(self.start)
        weight, bias, missing, superfluous = self.parts(values)
        p = torch.sigmoid(torch.einsum("ml,mbl->bl", weight, self.scores) + bias)
        gain = self.likelihood(p, missing, superfluous).log().sum(0) - self.chance
        weight = weight / self.scale[:, None]
        bias = bias - (weight * self.middle).sum(0)
        return LabelSetNoise(weight, bias, missing, superfluous, gain, len(self.given))

    def parts(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weights of the standardised scores, the bias, and the two noise shares, for some parameter values."""
        a, shares, scale, bias, missing, superfluous = values.split([self.tables, 2, *[self.labels] * 4])
        start = torch.logit(values.new_tensor(START_SHARES) / MAX_NOISE_SHARE)
        m, s = (
            MAX_NOISE_SHARE * torch.sigmoid(c + d) for c, d in zip(start + shares, (missing, superfluous), strict=True)
        )
        return a.exp()[:, None] * scale.exp(), bias, m, s

    def likelihood(self, p: Float[Tensor, "n L"], m: Float[Tensor, "L"], s: Float[Tensor, "L"]) -> Float[Tensor, "n L"]:
        """Return the probability of every given state."""
        given = s + p * (1 - m - s)
        return torch.where(self.given, given, 1 - given).clamp_min(1e-30)

    def objective(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log posterior per sample, and its gradient."""
        point = torch.as_tensor(values).to(self.start)
        weight, bias, m, s = self.parts(point)
        p = torch.sigmoid(torch.einsum("ml,mbl->bl", weight, self.scores) + bias)
        likely = self.likelihood(p, m, s)
        by_given = torch.where(self.given, 1 / likely, -1 / likely)  # d log likelihood / d P(given)
        by_odds = by_given * (1 - m - s) * p * (1 - p)
        by_weight = weight * torch.einsum("bl,mbl->ml", by_odds, self.scores)  # by the logarithm of each weight
        by_m = -(by_given * p).sum(0) * m * (1 - m / MAX_NOISE_SHARE)  # by the log odds of each share
        by_s = (by_given * (1 - p)).sum(0) * s * (1 - s / MAX_NOISE_SHARE)
        gradient = torch.cat(
            [by_weight.sum(1), torch.stack([by_m.sum(), by_s.sum()]), by_weight.sum(0), by_odds.sum(0), by_m, by_s]
        )
        away = (point - self.start.where(self.width.isfinite(), point)) / self.width
        loss = 0.5 * away.square().sum() - likely.log().sum()
        n = len(self.given)
        return float(loss) / n, ((away / self.width - gradient) / n).cpu().numpy()
