"""Consensus from votes and features together: class densities and neighbours, fitted with the soft labels of other samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize, minimize_scalar
from threadpoolctl import threadpool_limits
from torch import Tensor

from likewise.labels.annotators import Ballots, WorkerModel, fit_workers, log_votes
from likewise.labels.class_density import ClassDensity, fit_class_density
from likewise.labels.label_evidence import CrossFitted, LabelEvidence, discriminate
from likewise.labels.label_noise import (
    LIKELIHOOD_TOLERANCE,
    MAX_FITTED_SCORES,
    PARAMETER_BOUNDS,
    class_probabilities,
    row_blocks,
)
from likewise.labels.neighbour_votes import ADDED_VOTES_SHARE

NEIGHBOUR_BLOCK_SIZE = 2**25
"""Maximum number of soft labels of neighbours that are gathered at a time."""

START_WEIGHTS = (0.3, 3.0)
"""Weights of the standardised scores with which the fit of the weights starts."""

TEMPERATURE_RANGE = (1.0, 5.0)
"""Range of the temperature of the posterior: it does not become sharper."""

TEMPERATURE_PRIOR_DEVIATION = 0.5
"""Standard deviation of the logarithm of the temperature that is assumed before the votes are seen."""

WEIGHT_UPDATES = 3
"""Number of times that the weights of the features and the confusions of the workers are fitted in turn."""


class VoteConsensus(NamedTuple):
    """Posterior of every sample, the confusions of the workers, and what the features alone suggest."""

    q: Float[Tensor, "N C"]
    model: WorkerModel
    features: (
        Float[Tensor, "N C"] | None
    )  # P(class | features), fitted without the sample's fold; None: not informative
    gain: float  # log likelihood of the votes with features minus that without, per sample
    cluster: Int[Tensor, "N"] | None  # number of the cluster of near copies
    temperature: float = 1.0  # above 1: the model was too certain, by votes that were held out


@dataclass(frozen=True, eq=False)
class SoftEvidence:
    """Two tables of scores: class densities of the other folds, and soft labels of neighbours."""

    density: CrossFitted
    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # infinite: this neighbour has no vote
    soft: Float[Tensor, "N C"]

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "2 b C"]:
        near = torch.cat([self._neighbours(some) for some in rows.split(self._block)])
        return torch.cat([self.density.scores(rows), near[None]])

    def table(self) -> Float[Tensor, "2 N C"]:
        """Return the scores of all samples."""
        blocks = row_blocks(len(self.soft), self.soft.shape[1], self.soft.device)
        return torch.cat([self.scores(rows) for rows in blocks], 1)

    @property
    def _block(self) -> int:
        return max(1, NEIGHBOUR_BLOCK_SIZE // (self.near.shape[1] * self.soft.shape[1]))

    def _neighbours(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        weight = (-self.distance[rows]).softmax(1).nan_to_num(0.0)
        votes = torch.bmm(weight[:, None], self.soft[self.near[rows]])[:, 0]
        return (votes + ADDED_VOTES_SHARE / self.soft.shape[1]).log()


def find_consensus(
    x: Float[Tensor, "N F"] | None, votes: Ballots, *, rounds: int = 2, folds: int = 5, seed: int = 0,
    group: Int[Tensor, "N"] | None = None,
) -> VoteConsensus:  # fmt: skip
    """Return the posterior of every sample from its votes and the features of all samples.

    Formula: q_ic ~ softmax_c(a log N_c(x_i) + b log V_c(x_i) + log frequency_c) prod_v P_wc(l_v); N the density of class c, V the
        soft labels of neighbours, both without the sample's fold or copies; P the confusions of `fit_workers`; a and b maximise
        the likelihood of the votes. q is raised to the power of 1 / T, T by `fit_temperature`. In the first round, soft labels
        are the posteriors by votes alone; from the second on, by votes and features, with a model that saw neither the fold of
        the soft label nor the fold that it serves.

    Args:
        x: features; None: votes alone.
        rounds: number of times that class densities are fitted.
        folds: number of folds; near copies and samples of one group are in one fold.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together; -1: none.
    """
    model, q, frequency = fit_workers(votes)
    alone = VoteConsensus(q, model, None, 0.0, None)
    label = q.argmax(1)
    if x is None or len(label.unique()) < 2 or len(x) < 2 * folds:
        return calibrated(alone, votes, frequency)
    each, noise = discriminate(x, label, votes.classes, rounds=1, folds=folds, seed=seed, group=group)
    if not noise.informative:
        return calibrated(alone, votes, frequency)
    base = _Folds(each, folds)
    plain = mean_log_likelihood(frequency.expand_as(q), model.like)
    soft, best, best_prior, weight = q, alone, frequency, None
    for _ in range(rounds):
        if weight is None:
            evidence = base.fit(soft)
        else:
            evidence = base.refit(soft, weight, frequency, model.like)
        scores = evidence.table().double()
        for _ in range(WEIGHT_UPDATES):
            weight = fit_weights(scores, model.like, frequency, seed)
            p = class_probabilities(scores, weight, frequency)
            model, q, frequency = fit_workers(votes, p.clamp_min(1e-12).log(), q)
        gain = mean_log_likelihood(p.clamp_min(1e-12).log(), model.like) - plain
        if gain > best.gain:
            best, best_prior = VoteConsensus(q, model, p, gain, each.cluster), p.clamp_min(1e-12).log()
        soft = torch.softmax(frequency + model.like, 1)
    return calibrated(best, votes, best_prior)


def calibrated(found: VoteConsensus, votes: Ballots, log_prior: Float[Tensor, "*N C"]) -> VoteConsensus:
    """Return the consensus with its posterior at the temperature that suits held-out votes; no label changes."""
    logs = log_votes(votes, found.q, found.model)
    without = (log_prior + found.model.like)[votes.row] - logs
    temperature = fit_temperature(without, logs)
    return found._replace(q=torch.softmax(found.q.clamp_min(1e-300).log() / temperature, 1), temperature=temperature)


def fit_temperature(without: Float[Tensor, "V C"], logs: Float[Tensor, "V C"], seed: int = 0) -> float:
    """Return the temperature of posteriors under which held-out votes are most likely.

    A vote is predicted from the other votes about its sample and from the features. If the model is too certain (workers who
    err together, features that mislead), the vote differs from the predicted class more often than expected.

    Formula: T maximises sum_v log sum_c softmax_c(without_v / T) P_wc(l_v), times LogNormal(T; 0, deviation^2)

    Args:
        without: log posterior of the vote's sample, not normalised, without the vote.
        logs: log P(vote | true class).
    """
    limit = max(1, MAX_FITTED_SCORES // logs.shape[1])
    if len(logs) > limit:
        rows = torch.randperm(len(logs), generator=torch.Generator().manual_seed(seed))[:limit].to(logs.device)
        scale, without, logs = len(logs) / limit, without[rows], logs[rows]
    else:
        scale = 1.0

    def objective(log_t: float) -> float:
        fit = torch.logsumexp((without / math.exp(log_t)).log_softmax(1) + logs, 1).sum()
        return 0.5 * (log_t / TEMPERATURE_PRIOR_DEVIATION) ** 2 - scale * float(fit)

    low, high = map(math.log, TEMPERATURE_RANGE)
    found = minimize_scalar(objective, bounds=(low, high), method="bounded")
    return math.exp(float(found.x))  # pyright: ignore[reportAttributeAccessIssue]


def mean_log_likelihood(log_prior: Float[Tensor, "N C"], like: Float[Tensor, "N C"]) -> float:
    """Return the mean log likelihood of the votes of a sample."""
    return float(torch.logsumexp(log_prior + like, 1).mean())


def fit_weights(
    scores: Float[Tensor, "M N C"], like: Float[Tensor, "N C"], frequency: Float[Tensor, "C"], seed: int = 0
) -> Float[Tensor, "M"]:
    """Return the weights of the tables of scores under which the votes are most likely.

    Args:
        like: log P(votes | true class).
        frequency: log frequency of the classes.
    """
    limit = max(2 * scores.shape[2], MAX_FITTED_SCORES // scores.shape[2])
    if scores.shape[1] > limit:
        rows = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))[:limit].to(scores.device)
        scores, like = scores[:, rows], like[rows]
    scores = scores - scores.mean(2, keepdim=True)
    scale = scores.square().mean((1, 2)).sqrt().clamp_min(1e-12)
    scaled = scores / scale[:, None, None]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            point = torch.tensor(values, requires_grad=True)
            logits = torch.einsum("m,mnc->nc", point.exp().to(scaled), scaled) + frequency
            loss = -torch.logsumexp(logits.log_softmax(1) + like, 1).mean()
            loss.backward()
        assert point.grad is not None
        return loss.item(), point.grad.numpy()

    with threadpool_limits(1, "blas"):
        tried = [
            minimize(
                objective, np.full(len(scores), math.log(start)), method="L-BFGS-B", jac=True,
                bounds=[PARAMETER_BOUNDS[0]] * len(scores), options={"ftol": LIKELIHOOD_TOLERANCE},
            )
            for start in START_WEIGHTS
        ]  # fmt: skip
    best = min(tried, key=lambda one: one.fun)
    return torch.as_tensor(best.x).exp().to(scores) / scale


class _Folds:
    """Features in folds, and class densities that are fitted with soft labels of other folds."""

    def __init__(self, each: LabelEvidence, folds: int):
        self.x, self.fold, self.folds, self.shrink = each.density.x, each.density.fold, folds, each.setting[1]
        self.near, self.distance = each.votes.near, each.votes.distance
        self.rows = [(self.fold == k).nonzero()[:, 0] for k in range(folds)]
        self.square = torch.stack([self.x[rows].T @ self.x[rows] for rows in self.rows])

    def fit(self, soft: Float[Tensor, "N C"]) -> SoftEvidence:
        """Return the evidence that is fitted with the soft labels."""
        soft = soft.to(self.x)
        count, total = self._sums(soft)
        models = [self._without(count, total, k) for k in range(self.folds)]
        return SoftEvidence(CrossFitted(self.x, self.fold, models), self.near, self.distance, soft)

    def refit(
        self,
        soft: Float[Tensor, "N C"],
        weight: Float[Tensor, "2"],
        frequency: Float[Tensor, "C"],
        like: Float[Tensor, "N C"],
    ) -> SoftEvidence:
        """Return the evidence whose densities are fitted with posteriors by votes and features.

        The posterior of a sample in fold j, for the model of fold k, comes from a model of all folds but j and k.
        """
        soft = soft.to(self.x)
        count, total = self._sums(soft)
        new_count, new_total = torch.zeros_like(count), torch.zeros_like(total)
        first = SoftEvidence(CrossFitted(self.x, self.fold, []), self.near, self.distance, soft)
        voters = [
            replace(first, distance=self.distance.masked_fill((self.fold == k)[self.near], torch.inf))
            for k in range(self.folds)
        ]
        for pair in combinations(range(self.folds), 2):
            model = self._without(count, total, *pair)
            for k, own in (pair, pair[::-1]):
                each = replace(voters[k], density=CrossFitted(self.x, torch.zeros_like(self.fold), [model]))
                scores = each.scores(self.rows[own]).double()
                log_p = class_probabilities(scores, weight, frequency).clamp_min(1e-12).log()
                q = torch.softmax(log_p + like[self.rows[own]], 1).to(self.x)
                new_count[k] += q.sum(0)
                new_total[k] += q.T @ self.x[self.rows[own]]
        square = self.square.sum(0)
        models = [
            fit_class_density(new_count[k], new_total[k], square - self.square[k], self.shrink)
            for k in range(self.folds)
        ]
        return SoftEvidence(CrossFitted(self.x, self.fold, models), self.near, self.distance, soft)

    def _sums(self, soft: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "K C"], Float[Tensor, "K C F"]]:
        """Return the number and the sum of the samples of every class in every fold."""
        count = torch.stack([soft[rows].sum(0) for rows in self.rows])
        return count, torch.stack([soft[rows].T @ self.x[rows] for rows in self.rows])

    def _without(self, count: Tensor, total: Tensor, *left_out: int) -> ClassDensity:
        """Return the model of all folds but some."""
        kept = [k for k in range(self.folds) if k not in left_out]
        return fit_class_density(count[kept].sum(0), total[kept].sum(0), self.square[kept].sum(0), self.shrink)
