"""Evidence about the true class of every sample: class densities fitted without the sample's fold, and votes of neighbours.

No score of a sample depends on its given label, in any round: `discriminate` fits nested folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.class_density import ClassDensity, eigenvectors, fit_class_density
from likewise.labels.copy_clusters import copy_clusters, nearest_neighbours
from likewise.labels.label_noise import SCORE_BLOCK_SIZE, Noise, fit_noise, row_blocks, true_frequencies

MAX_COMPONENTS = 512
"""Maximum number of principal components of the features; with more, the scores are no better and take longer."""

SHRINK_GRID = (0.5, 0.2, 0.8, 0.95)
"""Shrinkage of the covariance within classes; the value with the highest likelihood of the given labels is used."""

SELECTION_SCORES_LIMIT = 2**17
"""Maximum number of scores that the scaling and the shrinkage are chosen by."""

VOTING_NEIGHBOURS_COUNT = 60
"""Number of neighbours that vote."""

VOTE_TEMPERATURE = 0.07
"""Temperature of the distances of voting neighbours, as a share of the median distance to the last of them."""

ADDED_VOTES_SHARE = 0.02
"""Votes that are added and spread over all classes: a class without votes is unlikely, not impossible."""


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Log densities of every class; each sample by a model that was fitted without its fold."""

    x: Float[Tensor, "N F"]
    fold: Int[Tensor, "N"]
    models: list[ClassDensity]

    @property
    def classes(self) -> int:
        return len(self.models[0].centre)

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return row_blocks(len(self.x), self.classes, self.x.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b C"]:
        found = self.x.new_empty(1, len(rows), self.classes)
        for k, model in enumerate(self.models):
            mine = self.fold[rows] == k
            found[0, mine] = model.scores(self.x[rows[mine]])
        return found

    def unseen_scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
        """Return the log density under a class that has no samples."""
        found = self.x.new_empty(len(rows))
        for k, model in enumerate(self.models):
            mine = self.fold[rows] == k
            found[mine] = model.unseen_scores(self.x[rows[mine]])
        return found


@dataclass(frozen=True, eq=False)
class Votes:
    """Log share of the votes of a sample's nearest neighbours for every class."""

    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # infinite: this neighbour has no vote
    y: Int[Tensor, "N"]
    classes: int

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return row_blocks(len(self.near), self.classes, self.near.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b C"]:
        weight = (-self.distance[rows]).softmax(1).nan_to_num(0.0)
        votes = weight.new_full((len(rows), self.classes), ADDED_VOTES_SHARE / self.classes)
        return votes.scatter_add_(1, self.y[self.near[rows]], weight).log()[None]

    def without(self, voter: Bool[Tensor, "N"]) -> Votes:
        """Return the votes without those of some samples."""
        return replace(self, distance=self.distance.masked_fill(voter[self.near], torch.inf))


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """Two tables of scores, of class densities and of votes; and how they were made."""

    density: CrossFitted
    votes: Votes
    cluster: Int[Tensor, "N"]  # number of the cluster of near copies
    setting: tuple[bool, float]  # unit vectors, shrinkage

    @property
    def classes(self) -> int:
        return self.votes.classes

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return self.votes.blocks()

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "2 b C"]:
        return torch.cat([self.density.scores(rows), self.votes.scores(rows)])


def discriminate(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, *, rounds: int = 2, folds: int = 10,
    setting: tuple[bool, float] | None = None, seed: int = 0, group: Int[Tensor, "N"] | None = None,
    cluster: Int[Tensor, "N"] | None = None,
) -> tuple[LabelEvidence, Noise]:  # fmt: skip
    """Return the evidence about the true classes, and the fitted noise model.

    Formula: s = a log p(x | class) + b log(votes), p the density of `fit_class_density`; `fit_noise` gives a, b and the noise.
        With two rounds, the classes are fitted again with the posteriors of the first round as soft labels, and the round with
        the higher likelihood of the given labels is used. For the samples of fold k, the posteriors come from models and votes
        without fold k and without the fold of the soft label.

    Args:
        rounds: 1: classes are fitted with the given labels; 2 or more: also with their posteriors.
        folds: number of folds; near copies and samples of one group are in one fold.
        setting: whether features are scaled to unit length, and the shrinkage; None: the most likely of `SHRINK_GRID`.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
        cluster: clusters of near copies, if they are known.
    """
    centred = principal_components(x)
    unit = F.normalize(centred, dim=1)
    near, distance = nearest_neighbours(unit, VOTING_NEIGHBOURS_COUNT)
    cluster = copy_clusters(near, distance, y, group) if cluster is None else cluster
    votes = neighbour_votes(near, distance, y, cluster, classes)
    fold = draw_folds(cluster, folds, seed)
    scaled = {False: centred, True: unit * unit.shape[1] ** 0.5}

    def trial(of_unit_length: bool, shrink: float) -> _Trial:
        return _Trial(scaled[of_unit_length], (of_unit_length, shrink), y, fold, folds, votes, cluster, seed)

    if setting is not None:
        best = trial(*setting)
    else:
        best = max((trial(way, SHRINK_GRID[0]) for way in scaled), key=lambda one: one.gain)
        best = max((best, *(trial(best.setting[0], shrink) for shrink in SHRINK_GRID[1:])), key=lambda one: one.gain)
    each, noise = best.evidence, fit_noise(best.evidence, y, seed=seed)
    if rounds == 1 or not noise.informative:
        return each, noise
    again = replace(each, density=refit(best, noise, y))
    better = selection_gain(again, y, seed) > best.gain
    return (again, fit_noise(again, y, seed=seed)) if better else (each, noise)


def selection_gain(each: LabelEvidence, y: Int[Tensor, "N"], seed: int) -> float:
    """Return the gain of a noise model without similar classes, fitted on a limited number of scores; for selection only."""
    return fit_noise(each, y, similar=False, most=SELECTION_SCORES_LIMIT, seed=seed).gain


def principal_components(x: Float[Tensor, "N F"], most: int = MAX_COMPONENTS) -> Float[Tensor, "N K"]:
    """Return the features along their first principal components, at most `most`, with mean 0 and variance 1 over all."""
    x = x - x.mean(0)
    if x.shape[1] > most:
        x = x @ eigenvectors(x.T @ x)[1][:, -most:]
    return x / x.std().clamp_min(1e-12)


def draw_folds(cluster: Int[Tensor, "N"], folds: int, seed: int) -> Int[Tensor, "N"]:
    """Return a random fold for every sample, the same for all samples of a cluster."""
    count = int(cluster.max()) + 1
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) % folds
    return order.to(cluster.device)[cluster]


def neighbour_votes(
    near: Int[Tensor, "N k"],
    distance: Float[Tensor, "N k"],
    y: Int[Tensor, "N"],
    cluster: Int[Tensor, "N"],
    classes: int,
) -> Votes:
    """Return the weighted votes of the nearest neighbours outside the sample's own cluster, each for its given label."""
    temperature = VOTE_TEMPERATURE * distance[:, -1].median().clamp_min(1e-12)
    own = cluster[near] == cluster[:, None]
    return Votes(near, (distance / temperature).masked_fill(own, torch.inf), y, classes)


class _Trial:
    """Class densities that are fitted with the given labels, by one scaling of the features and one shrinkage."""

    def __init__(
        self, x: Float[Tensor, "N F"], setting: tuple[bool, float], y: Int[Tensor, "N"], fold: Int[Tensor, "N"], folds: int,
        votes: Votes, cluster: Int[Tensor, "N"], seed: int,
    ):  # fmt: skip
        self.x, self.setting, self.fold, self.folds, self.votes = x, setting, fold, folds, votes
        self.y, self.seed = y, seed
        self.rows = [(fold == k).nonzero()[:, 0] for k in range(folds)]
        zero = x.new_zeros(votes.classes, x.shape[1])
        self.count = torch.stack([torch.bincount(y[rows], minlength=votes.classes).to(x) for rows in self.rows])
        self.total = torch.stack([zero.index_add(0, y[rows], x[rows]) for rows in self.rows])
        self.square = torch.stack([x[rows].T @ x[rows] for rows in self.rows])
        density = CrossFitted(x, fold, [self.without(k) for k in range(folds)])
        self.evidence = LabelEvidence(density, votes, cluster, setting)

    @cached_property
    def gain(self) -> float:
        """How well the evidence explains the given labels, to compare trials and rounds by."""
        return selection_gain(self.evidence, self.y, self.seed)

    def without(self, *left_out: int) -> ClassDensity:
        """Return the model of all folds but some."""
        kept = [k for k in range(self.folds) if k not in left_out]
        return fit_class_density(
            self.count[kept].sum(0), self.total[kept].sum(0), self.square[kept].sum(0), self.setting[1]
        )


def refit(trial: _Trial, noise: Noise, y: Int[Tensor, "N"]) -> CrossFitted:
    """Return class densities that are fitted with the posteriors of the first round; no posterior saw the fold that it serves.

    The posterior of a sample in fold j, for the model of fold k, comes from a model of all folds but j and k.
    """
    count, total = torch.zeros_like(trial.count), torch.zeros_like(trial.total)
    given, classes = trial.count.sum(0), trial.votes.classes
    votes = [trial.votes.without(trial.fold == k) for k in range(trial.folds)]
    prior = [true_frequencies(given - trial.count[k], noise.any).log() for k in range(trial.folds)]
    for pair in combinations(range(trial.folds), 2):
        model = trial.without(*pair)
        for k, own in (pair, pair[::-1]):
            for rows in trial.rows[own].split(max(1, SCORE_BLOCK_SIZE // classes)):
                scores = torch.cat([model.scores(trial.x[rows])[None], votes[k].scores(rows)])
                q = noise._replace(prior=prior[k]).posterior(scores, y[rows])
                count[k] += q.sum(0)
                total[k] += q.T @ trial.x[rows]
    square = trial.square.sum(0)
    models = [
        fit_class_density(count[k], total[k], square - trial.square[k], trial.setting[1]) for k in range(trial.folds)
    ]
    return CrossFitted(trial.x, trial.fold, models)
