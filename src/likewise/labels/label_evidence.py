"""Evidence about the labels of every sample: densities fitted without the sample's fold, and votes of neighbours.

Two models have the same flow. `discriminate`: labels exclude each other, a sample has one of C classes. `discriminate_sets`: a
sample has any of L independent labels, each a problem of two classes. No score of a label depends on whether the sample was
given it, in any round: classes are fitted in nested folds, and labels without the fold of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.class_density import (
    MAX_RELATED_LABELS,
    MAX_RELATED_ODDS,
    ClassDensity,
    LabelSums,
    LinearOdds,
    density_odds,
    eigenvectors,
    fit_class_density,
    related_odds,
    sums_of,
)
from likewise.labels.label_noise import (
    SCORE_BLOCK_SIZE,
    SELECTION_TOLERANCE,
    LabelSetNoise,
    Noise,
    fit_label_noise,
    fit_noise,
    true_frequencies,
)
from likewise.labels.neighbour_votes import (
    VOTING_NEIGHBOURS_COUNT,
    ClassVotes,
    LabelVotes,
    SoftVotes,
    copy_clusters,
    nearest_neighbours,
    vote_distances,
)

MAX_COMPONENTS = 512
"""Maximum number of principal components of the features; with more, the scores are no better and take longer."""

SHRINK_GRID = (0.5, 0.2, 0.8, 0.95)
"""Shrinkage of the covariance within classes; the value with the highest likelihood of the given labels is used."""

SELECTION_SCORES_LIMIT = 2**17
"""Maximum number of scores that the scaling and the shrinkage are chosen by."""

Setting = tuple[bool, float]
"""Whether features are scaled to unit length, and the shrinkage."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Log densities of every class, or log odds of every label; each sample by a model that was fitted without its fold."""

    x: Float[Tensor, "N F"]
    fold: Int[Tensor, "N"]
    models: list[ClassDensity] | list[LinearOdds]

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b C"]:
        found = self.x.new_empty(1, len(rows), self.models[0].classes)
        for k, model in enumerate(self.models):
            mine = self.fold[rows] == k
            found[0, mine] = model.scores(self.x[rows[mine]])
        return found

    def unseen_scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
        """Return the log density under a class that has no samples."""
        found = self.x.new_empty(len(rows))
        for k, model in enumerate(self.models):
            assert isinstance(model, ClassDensity)
            mine = self.fold[rows] == k
            found[mine] = model.unseen_scores(self.x[rows[mine]])
        return found


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """Tables of scores of every class or label, and how they were made: densities, votes, and for label sets the other labels."""

    density: CrossFitted
    votes: ClassVotes | LabelVotes | SoftVotes
    cluster: Int[Tensor, "N"]  # number of the cluster of near copies
    setting: Setting
    related: CrossFitted | None = None  # log odds of each label by the other labels of the sample

    @property
    def classes(self) -> int:
        return self.votes.classes

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return self.votes.blocks()

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "M b C"]:
        tables = [self.density, self.votes, *([] if self.related is None else [self.related])]
        return torch.cat([one.scores(rows) for one in tables])


class Layout(NamedTuple):
    """What both models start from: the features in both scalings, neighbours and their votes, copies and folds."""

    scaled: dict[bool, Float[Tensor, "N K"]]  # whether of unit length -> features
    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # in units of the temperature; infinite: no vote
    cluster: Int[Tensor, "N"]
    fold: Int[Tensor, "N"]


def lay_out(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], folds: int, seed: int, group: Int[Tensor, "N"] | None,
    cluster: Int[Tensor, "N"] | None = None,
) -> Layout:  # fmt: skip
    """Return features, neighbours, clusters of copies and folds.

    Args:
        y: class of every sample; of samples with several labels, the number of the label set.
        folds, seed, group, cluster: as in `discriminate`.
    """
    centred = principal_components(x)
    unit = F.normalize(centred, dim=1)
    near, distance = nearest_neighbours(unit, VOTING_NEIGHBOURS_COUNT)
    cluster = copy_clusters(near, distance, y, group) if cluster is None else cluster
    scaled = {False: centred, True: unit * unit.shape[1] ** 0.5}
    return Layout(scaled, near, vote_distances(near, distance, cluster), cluster, draw_folds(cluster, folds, seed))


def most_likely(make: Callable[[Setting], T], gain: Callable[[T], float]) -> T:
    """Return what `make` returns for the setting with the highest gain: first of both scalings, then of all shrinkages."""

    def tried(setting: Setting) -> tuple[float, Setting, T]:
        made = make(setting)
        return gain(made), setting, made

    best = max((tried((way, SHRINK_GRID[0])) for way in (False, True)), key=lambda one: one[0])
    way = best[1][0]
    return max((best, *(tried((way, shrink)) for shrink in SHRINK_GRID[1:])), key=lambda one: one[0])[2]


def discriminate(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, *, rounds: int = 2, folds: int = 10,
    setting: Setting | None = None, seed: int = 0, group: Int[Tensor, "N"] | None = None,
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
    layout = lay_out(x, y, folds, seed, group, cluster)
    votes = ClassVotes(layout.near, layout.distance, y, classes)

    def trial(setting: Setting) -> Trial:
        sums = fold_sums(layout.scaled[setting[0]], layout.fold, folds, y, classes, setting[1])
        return Trial(sums, votes, LabelEvidence(sums.fitted(), votes, layout.cluster, setting), seed)

    best = most_likely(trial, lambda one: one.gain) if setting is None else trial(setting)
    each, noise = best.evidence, fit_noise(best.evidence, y, seed=seed)
    if rounds == 1 or not noise.informative:
        return each, noise
    again = replace(each, density=refit(best, noise))
    better = selection_gain(again, y, seed) > best.gain
    return (again, fit_noise(again, y, seed=seed)) if better else (each, noise)


def selection_gain(each: LabelEvidence, y: Int[Tensor, "N"], seed: int) -> float:
    """Return the gain of a noise model without similar classes, fitted on a limited number of scores; for selection only."""
    return fit_noise(each, y, similar=False, most=SELECTION_SCORES_LIMIT, seed=seed).gain


def discriminate_sets(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"], *, folds: int = 10, setting: Setting | None = None,
    seed: int = 0, group: Int[Tensor, "N"] | None = None,
) -> tuple[LabelEvidence, LabelSetNoise]:  # fmt: skip
    """Return the evidence about every label of every sample, and the fitted noise model.

    Formula: log odds of label l = a_l odds of two Gaussians (`density_odds`) + b_l odds of the votes + c_l odds by the other
        labels (`related_odds`) + d_l; `fit_label_noise` gives a to d and the noise. A first fit by densities and votes finds the
        labels that are probably right; these serve as evidence about the other labels.

    Args:
        has: 1 where a sample was given a label, otherwise 0.
        folds, setting, seed, group: as in `discriminate`.
    """
    each = set_evidence(x, has, folds=folds, setting=setting, seed=seed, group=group)
    first = fit_label_noise(each, has, seed=seed)
    wrong = torch.cat([first.wrong(each.scores(rows), has[rows]) for rows in each.blocks()])
    wrong = wrong * first.informative.to(wrong)
    both = with_related(each, (has - wrong).abs())
    return (each, first) if both is each else (both, fit_label_noise(both, has, seed=seed))


def set_selection_gain(each: LabelEvidence, has: Float[Tensor, "N L"], seed: int) -> float:
    """Return roughly how well evidence explains the given label sets, in nats; for selection only."""
    return float(fit_label_noise(each, has, SELECTION_SCORES_LIMIT, seed, SELECTION_TOLERANCE).gain.sum())


def set_evidence(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"], *, folds: int = 10, setting: Setting | None = None,
    seed: int = 0, group: Int[Tensor, "N"] | None = None,
) -> LabelEvidence:  # fmt: skip
    """Return the evidence about every label by densities and votes; the arguments are those of `discriminate_sets`."""
    layout = lay_out(x, has.unique(dim=0, return_inverse=True)[1], folds, seed, group)
    votes = LabelVotes(layout.near, layout.distance, has)
    sums = {
        way: [list(one) for one in zip(*(sums_of(z[layout.fold == k], has[layout.fold == k]) for k in range(folds)))]
        for way, z in layout.scaled.items()
    }

    def fitted(setting: Setting) -> LabelEvidence:
        way, shrink = setting
        models = [density_odds(LabelSums(*(without(one, k) for one in sums[way])), shrink) for k in range(folds)]
        return LabelEvidence(CrossFitted(layout.scaled[way], layout.fold, models), votes, layout.cluster, setting)

    return most_likely(fitted, lambda one: set_selection_gain(one, has, seed)) if setting is None else fitted(setting)


def with_related(each: LabelEvidence, cleaned: Float[Tensor, "N L"]) -> LabelEvidence:
    """Return the evidence with a third table, of the other labels of each sample; as it is if there are too many, or one.

    A label that is probably wrong must not imply others, so the labels are given as probabilities.

    Args:
        cleaned: P(the sample has the label), each without the other labels of the sample.
    """
    if not 2 <= each.classes <= MAX_RELATED_LABELS:
        return each
    fold, limit = each.density.fold, MAX_RELATED_ODDS * math.log(len(cleaned))
    parts = [cleaned[fold == k] for k in range(len(each.density.models))]
    count, both = [one.sum(0) for one in parts], [one.T @ one for one in parts]
    odds = [
        related_odds(len(cleaned) - len(one), without(count, k), without(both, k), limit) for k, one in enumerate(parts)
    ]
    return replace(each, related=CrossFitted(cleaned, fold, odds))


def without(parts: list[Tensor], *left_out: int) -> Tensor:
    """Return the sum of the parts but some; a difference to the whole would keep traces of these in its rounding."""
    return torch.stack([one for k, one in enumerate(parts) if k not in left_out]).sum(0)


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


@dataclass(frozen=True, eq=False)
class FoldSums:
    """Number, sum and products of the samples of every class in every fold: densities without some folds are fitted from them."""

    x: Float[Tensor, "N F"]
    fold: Int[Tensor, "N"]
    rows: list[Int[Tensor, "_"]]  # of every fold
    count: Float[Tensor, "K C"]
    total: Float[Tensor, "K C F"]
    square: Float[Tensor, "K F F"]
    shrink: float

    def without(self, *left_out: int) -> ClassDensity:
        """Return the densities of all folds but some."""
        kept = [k for k in range(len(self.rows)) if k not in left_out]
        return fit_class_density(
            self.count[kept].sum(0), self.total[kept].sum(0), self.square[kept].sum(0), self.shrink
        )

    def fitted(self) -> CrossFitted:
        """Return the densities that are fitted with these labels."""
        return CrossFitted(self.x, self.fold, [self.without(k) for k in range(len(self.rows))])

    def refitted(self, posterior: Callable[[ClassDensity, int, Tensor], Float[Tensor, "n C"]]) -> CrossFitted:
        """Return densities that are fitted with posteriors as soft labels; no posterior saw the fold that it serves.

        Args:
            posterior: returns the posteriors of some rows of fold j that serve the model of fold k, from a model of all folds
                but j and k, and k.
        """
        count, total, square = torch.zeros_like(self.count), torch.zeros_like(self.total), self.square.sum(0)
        for pair in combinations(range(len(self.rows)), 2):
            model = self.without(*pair)
            for k, own in (pair, pair[::-1]):
                for rows in self.rows[own].split(max(1, SCORE_BLOCK_SIZE // count.shape[1])):
                    q = posterior(model, k, rows)
                    count[k] += q.sum(0)
                    total[k] += q.T @ self.x[rows]
        models = [
            fit_class_density(count[k], total[k], square - self.square[k], self.shrink) for k in range(len(self.rows))
        ]
        return CrossFitted(self.x, self.fold, models)


def fold_sums(
    x: Float[Tensor, "N F"], fold: Int[Tensor, "N"], folds: int, labels: Int[Tensor, "N"] | Float[Tensor, "N C"],
    classes: int, shrink: float,
) -> FoldSums:  # fmt: skip
    """Return the sums of every fold, by the class of every sample or by its probability of every class."""
    rows = [(fold == k).nonzero()[:, 0] for k in range(folds)]
    square = torch.stack([x[own].T @ x[own] for own in rows])
    if labels.ndim == 2:
        count = torch.stack([labels[own].sum(0) for own in rows])
        total = torch.stack([labels[own].T @ x[own] for own in rows])
    else:
        zero = x.new_zeros(classes, x.shape[1])
        count = torch.stack([torch.bincount(labels[own], minlength=classes).to(x) for own in rows])
        total = torch.stack([zero.index_add(0, labels[own], x[own]) for own in rows])
    return FoldSums(x, fold, rows, count, total, square, shrink)


@dataclass(frozen=True, eq=False)
class Trial:
    """Evidence by densities that are fitted with the given labels, for one setting, and the sums that they are fitted from."""

    sums: FoldSums
    votes: ClassVotes
    evidence: LabelEvidence
    seed: int

    @cached_property
    def gain(self) -> float:
        """How well the evidence explains the given labels, to compare trials and rounds by."""
        return selection_gain(self.evidence, self.votes.y, self.seed)


def refit(trial: Trial, noise: Noise) -> CrossFitted:
    """Return class densities that are fitted with the posteriors of the first round; no posterior saw the fold that it serves."""
    sums = trial.sums
    given, folds = sums.count.sum(0), range(len(sums.rows))
    votes = [trial.votes.without(sums.fold == k) for k in folds]
    prior = [true_frequencies(given - sums.count[k], noise.any).log() for k in folds]

    def posterior(model: ClassDensity, k: int, rows: Int[Tensor, "n"]) -> Float[Tensor, "n C"]:
        scores = torch.cat([model.scores(sums.x[rows])[None], votes[k].scores(rows)])
        return noise._replace(prior=prior[k]).posterior(scores, trial.votes.y[rows])

    return sums.refitted(posterior)
