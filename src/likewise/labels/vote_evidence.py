"""Consensus from votes and features together: class densities and neighbours, fitted with the soft labels of other samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize, minimize_scalar
from threadpoolctl import threadpool_limits
from torch import Tensor

from likewise.labels.annotators import Ballots, WorkerModel, fit_workers, log_votes
from likewise.labels.class_density import ClassDensity
from likewise.labels.label_evidence import CrossFitted, FoldSums, SoftLabels, discriminate, fold_sums
from likewise.labels.label_noise import (
    LIKELIHOOD_TOLERANCE,
    MAX_FITTED_SCORES,
    PARAMETER_BOUNDS,
    class_probabilities,
)
from likewise.labels.neighbour_votes import SoftVotes

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
    # P(class | features), fitted without the sample's fold; None: not informative
    features: Float[Tensor, "N C"] | None
    gain: float  # log likelihood of the votes with features minus that without, per sample
    cluster: Int[Tensor, "N"] | None  # number of the cluster of near copies
    temperature: float = 1.0  # above 1: the model was too certain, by votes that were held out


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
    each, noise = discriminate(
        x, label, votes.classes, rounds=1, folds=folds, seed=seed, group=group,
        candidates=votes.classes,
    )  # fmt: skip
    if not noise.informative:
        return calibrated(alone, votes, frequency)
    plain = mean_log_likelihood(frequency.expand_as(q), model.like)
    soft, best, best_prior, weight = q, alone, frequency, None
    for _ in range(rounds):
        labels, density = soft.to(each.density.x), each.density
        sums = fold_sums(density.x, density.fold, folds, labels, votes.classes, each.setting[1])
        near = SoftVotes(each.votes.near, each.votes.distance, labels)
        fitted = sums.fitted() if weight is None else refit_with_votes(sums, near, weight, frequency, model.like)
        evidence = replace(each, density=fitted, votes=near)
        scores = torch.cat([evidence.scores(rows) for rows in evidence.blocks()], 1).double()
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


def refit_with_votes(
    sums: FoldSums, votes: SoftVotes, weight: Float[Tensor, "2"], frequency: Float[Tensor, "C"],
    like: Float[Tensor, "N C"],
) -> CrossFitted:  # fmt: skip
    """Return densities that are fitted with posteriors by votes and features; no posterior saw the fold that it serves.

    Args:
        weight: of the scores by densities and by neighbours.
        frequency: log frequency of the classes.
        like: log P(votes | true class).
    """
    voters = [votes.without(sums.fold == k) for k in range(len(sums.rows))]
    return sums.refitted(VotesAndFeatures(sums.x, voters, weight, frequency, like))


@dataclass(frozen=True, eq=False)
class VotesAndFeatures:
    """Posteriors by votes of workers and features, for `FoldSums.refitted`; it can be sent to other processes."""

    x: Float[Tensor, "N F"]
    voters: list[SoftVotes]  # without each fold
    weight: Float[Tensor, "2"]
    frequency: Float[Tensor, "C"]
    like: Float[Tensor, "N C"]

    def __call__(self, model: ClassDensity, k: int, rows: Int[Tensor, "n"]) -> SoftLabels:
        scores = torch.cat([model.scores(self.x[rows])[None], self.voters[k].scores(rows)]).double()
        log_p = class_probabilities(scores, self.weight, self.frequency).clamp_min(1e-12).log()
        return SoftLabels(torch.softmax(log_p + self.like[rows], 1).to(self.x))
