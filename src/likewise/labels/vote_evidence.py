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

from likewise.labels.annotators import SharedModel, WorkerModel, fit_workers, log_votes
from likewise.labels.ballots import Ballots, column_prior
from likewise.labels.candidate_classes import CANDIDATE_CLASSES_COUNT, Columns, without_drawn
from likewise.labels.class_density import ClassDensity
from likewise.labels.label_evidence import (
    CrossFitted,
    FoldSums,
    LabelEvidence,
    SoftLabels,
    discriminate,
    fold_sums,
    narrow_candidates,
)
from likewise.labels.label_noise import (
    LIKELIHOOD_TOLERANCE,
    MAX_FITTED_SCORES,
    PARAMETER_BOUNDS,
    Noise,
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

    votes: Ballots  # with the columns of q: all classes, or candidates
    q: Float[Tensor, "N W"]
    model: WorkerModel | SharedModel
    # P(class | features), fitted without the sample's fold; None: not informative
    features: Float[Tensor, "N W"] | None
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
    alone, alone_prior = VoteConsensus(votes, q, model, None, 0.0, None), column_prior(frequency, votes.columns)
    label = votes.decided(q).label
    if x is None or len(label.unique()) < 2 or len(x) < 2 * folds:
        return calibrated(alone, alone_prior)
    each, noise = discriminate(
        x, label, votes.classes, rounds=1, folds=folds, seed=seed, group=group,
        candidates=votes.classes if votes.columns is None else CANDIDATE_CLASSES_COUNT,
    )  # fmt: skip
    if not noise.informative:
        return calibrated(alone, alone_prior)
    if votes.columns is not None:
        votes = with_features(votes, each, noise, label)
        model, q, frequency = fit_workers(votes)
    columns, best, best_prior, weight = votes.columns, alone, alone_prior, None
    plain, soft = mean_log_likelihood(column_prior(frequency, columns), model.like), q
    for _ in range(rounds):
        table, labels = each.density.x, soft_labels(soft.to(each.votes.distance), columns)
        assert isinstance(table, Tensor)
        sums = fold_sums(table, each.density.fold, folds, labels, votes.classes, each.setting[1])
        near = SoftVotes(each.votes.near, each.votes.distance, labels.q, columns, votes.classes)
        fitted = sums.fitted()
        if weight is not None:
            sums = replace(sums, width=votes.width)
            fitted = refit_with_votes(sums, near, weight, frequency, model.like)
        scores = torch.cat([column_scores(fitted, near, rows) for rows in near.blocks()], 1).double()
        for _ in range(WEIGHT_UPDATES):
            prior = column_prior(frequency, columns)
            weight = fit_weights(scores, model.like, prior, seed)
            p = class_probabilities(scores, weight, prior)
            model, q, frequency = fit_workers(votes, p.clamp_min(1e-12).log(), q)
        gain = mean_log_likelihood(p.clamp_min(1e-12).log(), model.like) - plain
        if gain > best.gain:
            best, best_prior = VoteConsensus(votes, q, model, p, gain, each.cluster), p.clamp_min(1e-12).log()
        soft = torch.softmax(column_prior(frequency, columns) + model.like, 1)
    return calibrated(best, best_prior)


def with_features(votes: Ballots, each: LabelEvidence, noise: Noise, label: Int[Tensor, "N"]) -> Ballots:
    """Return the votes with columns for the classes that the features of a sample suggest, and for drawn classes.

    Args:
        label: classes that the features were compared with.
    """
    chosen = each.candidates
    assert chosen is not None
    narrow = narrow_candidates(each, chosen, noise, label)
    return votes.with_candidates(torch.cat([narrow.label, chosen.label[:, -chosen.drawn :]], 1), chosen.drawn)


def soft_labels(q: Float[Tensor, "N W"], columns: Columns | None) -> SoftLabels:
    """Return posteriors as soft labels; columns of several classes have none."""
    return SoftLabels(without_drawn(q, columns), None if columns is None else columns.label)


def column_scores(fitted: CrossFitted, near: SoftVotes, rows: Int[Tensor, "n"]) -> Float[Tensor, "2 n W"]:
    """Return the scores of some samples by densities and by neighbours."""
    columns = None if near.columns is None else near.columns.of(rows)
    return torch.cat([fitted.scores(rows, columns), near.scores(rows)])


def calibrated(found: VoteConsensus, log_prior: Float[Tensor, "*N W"]) -> VoteConsensus:
    """Return the consensus with its posterior at the temperature that suits held-out votes; no label changes."""
    votes, columns = found.votes, found.votes.columns
    logs = log_votes(votes, found.q, found.model)
    without = (log_prior + found.model.like)[votes.row] - logs
    size = None if columns is None else columns.size.double()
    temperature = fit_temperature(without, logs, size=None if size is None else size[votes.row])
    q = torch.softmax(tempered(found.q.clamp_min(1e-300).log(), temperature, size), 1)
    return found._replace(q=q, temperature=temperature)


def tempered(
    logs: Float[Tensor, "n W"], temperature: float, size: Float[Tensor, "n W"] | None = None
) -> Float[Tensor, "n W"]:
    """Return log probabilities divided by the temperature, those of a column of several classes one by one.

    Args:
        size: logarithm of the number of classes that a column stands for; -inf: it is not used.
    """
    if size is None:
        return logs / temperature
    several = size.clamp_min(0)
    return ((logs - several) / temperature + several).masked_fill(size.isinf(), -torch.inf)


def fit_temperature(
    without: Float[Tensor, "V W"], logs: Float[Tensor, "V W"], seed: int = 0, size: Float[Tensor, "V W"] | None = None
) -> float:
    """Return the temperature of posteriors under which held-out votes are most likely.

    A vote is predicted from the other votes about its sample and from the features. If the model is too certain (workers who
    err together, features that mislead), the vote differs from the predicted class more often than expected.

    Formula: T maximises sum_v log sum_c softmax_c(without_v / T) P_wc(l_v), times LogNormal(T; 0, deviation^2)

    Args:
        without: log posterior of the vote's sample, not normalised, without the vote.
        logs: log P(vote | true class).
        size: as in `tempered`.
    """
    limit = max(1, MAX_FITTED_SCORES // logs.shape[1])
    if len(logs) > limit:
        rows = torch.randperm(len(logs), generator=torch.Generator().manual_seed(seed))[:limit].to(logs.device)
        scale, without, logs = len(logs) / limit, without[rows], logs[rows]
        size = None if size is None else size[rows]
    else:
        scale = 1.0

    def objective(log_t: float) -> float:
        fit = torch.logsumexp(tempered(without, math.exp(log_t), size).log_softmax(1) + logs, 1).sum()
        return 0.5 * (log_t / TEMPERATURE_PRIOR_DEVIATION) ** 2 - scale * float(fit)

    low, high = map(math.log, TEMPERATURE_RANGE)
    found = minimize_scalar(objective, bounds=(low, high), method="bounded")
    return math.exp(float(found.x))  # pyright: ignore[reportAttributeAccessIssue]


def mean_log_likelihood(log_prior: Float[Tensor, "*N W"], like: Float[Tensor, "N W"]) -> float:
    """Return the mean log likelihood of the votes of a sample."""
    return float(torch.logsumexp(log_prior + like, 1).mean())


def fit_weights(
    scores: Float[Tensor, "M N W"], like: Float[Tensor, "N W"], prior: Float[Tensor, "*N W"], seed: int = 0
) -> Float[Tensor, "M"]:
    """Return the weights of the tables of scores under which the votes are most likely.

    Args:
        like: log P(votes | true class).
        prior: log frequency of the class of every column.
    """
    limit = max(2 * scores.shape[2], MAX_FITTED_SCORES // scores.shape[2])
    if scores.shape[1] > limit:
        rows = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))[:limit].to(scores.device)
        scores, like = scores[:, rows], like[rows]
        prior = prior if prior.ndim == 1 else prior[rows]
    scores = scores - scores.mean(2, keepdim=True)
    scale = scores.square().mean((1, 2)).sqrt().clamp_min(1e-12)
    scaled = scores / scale[:, None, None]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            point = torch.tensor(values, requires_grad=True)
            logits = torch.einsum("m,mnc->nc", point.exp().to(scaled), scaled) + prior
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
    like: Float[Tensor, "N W"],
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
    like: Float[Tensor, "N W"]

    def __call__(self, model: ClassDensity, k: int, rows: Int[Tensor, "n"]) -> SoftLabels:
        columns = self.voters[k].columns
        columns = None if columns is None else columns.of(rows)
        x = self.x[rows]
        density = model.scores(x) if columns is None else model.scores_at(x, columns.label)
        scores = torch.cat([density[None], self.voters[k].scores(rows)]).double()
        p = class_probabilities(scores, self.weight, column_prior(self.frequency, columns))
        q = torch.softmax(p.clamp_min(1e-12).log() + self.like[rows], 1)
        return soft_labels(q.to(self.x), columns)
