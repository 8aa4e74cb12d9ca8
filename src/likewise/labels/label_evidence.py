"""Evidence about the labels of every sample: densities fitted without the sample's fold, and votes of neighbours.

Two models have the same flow. `discriminate`: labels exclude each other, a sample has one of C classes. `discriminate_sets`: a
sample has any of L independent labels, each a problem of two classes. No score of a label depends on whether the sample was
given it, in any round: classes are fitted in nested folds, and labels without the fold of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.block_executors import map_blocks
from likewise.labels.candidate_classes import (
    CANDIDATE_CLASSES_COUNT,
    NEAREST_CENTRES_COUNT,
    CandidateClasses,
    Columns,
    choose_candidates,
    scores_all_classes,
    shared_candidates,
)
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
from likewise.labels.given_sets import GivenSets, set_numbers
from likewise.labels.label_noise import (
    SCORE_BLOCK_SIZE,
    SELECTION_TOLERANCE,
    LabelSetNoise,
    Noise,
    fit_label_noise,
    fit_noise,
    true_frequencies,
)
from likewise.labels.neighbour_search import nearest_centres, nearest_neighbours
from likewise.labels.neighbour_votes import (
    VOTING_NEIGHBOURS_COUNT,
    ClassVotes,
    LabelVotes,
    SoftVotes,
    copy_clusters,
    vote_distances,
)

NEIGHBOURS_RECALL = 0.8
"""Share of the nearest neighbours that an approximate search should find.

40,000 samples of 8,000 made classes: with 82 % of the neighbours the average precision was that with all (0.994), and with
59 % it was 0.987."""

MAX_COMPONENTS = 512
"""Maximum number of principal components of the features; with more, the scores are no better and take longer."""

SHRINK_GRID = (0.5, 0.2, 0.8, 0.95)
"""Shrinkage of the covariance within classes; the value with the highest likelihood of the given labels is used."""

SELECTION_SCORES_LIMIT = 2**17
"""Maximum number of scores that the scaling and the shrinkage are chosen by."""

CLASS_BLOCK_SIZE = 4096
"""Number of classes whose sums over folds are added at a time."""

REFIT_CLASSES_COUNT = 24
"""Number of candidates of a sample that classes are fitted again with, the most probable ones."""

MIN_SOFT_SHARE = 1e-3
"""Smallest probability of a candidate with which a sample counts for a class."""

SOFT_BLOCK_ROWS = 2**14
"""Number of samples with soft labels of candidates that are added to the sums of classes at a time."""

Setting = tuple[bool, float]
"""Whether features are scaled to unit length, and the shrinkage."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Log densities of every class, or log odds of every label; each sample by a model that was fitted without its fold."""

    x: Float[Tensor, "N F"] | CleanedLabels
    fold: Int[Tensor, "N"]
    models: list[ClassDensity] | list[LinearOdds]

    def scores(self, rows: Int[Tensor, "b"], columns: Columns | None = None) -> Float[Tensor, "1 b W"]:
        width = self.models[0].classes if columns is None else columns.label.shape[1]
        found = self.x.new_empty(1, len(rows), width)
        for k, model in enumerate(self.models):
            mine = (self.fold[rows] == k).nonzero()[:, 0]
            if columns is None:
                found[0, mine] = model.scores(self.x[rows[mine]])
            elif len(mine):
                assert isinstance(model, ClassDensity)
                found[0, mine] = model.scores_at(self.x[rows[mine]], columns.label[mine])
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
    candidates: CandidateClasses | None = None  # None: all classes have scores
    recall: float = 1.0  # share of the nearest neighbours that the search found

    @property
    def classes(self) -> int:
        return self.votes.classes

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return self.votes.blocks()

    def columns(self, rows: Int[Tensor, "b"]) -> Columns | None:
        return None if self.candidates is None else self.candidates.columns(rows)

    def of_all_classes(self) -> LabelEvidence:
        """Return the same evidence with the scores of all classes in place of those of candidates."""
        assert isinstance(self.votes, ClassVotes)
        return replace(self, candidates=None, votes=replace(self.votes, candidates=None))

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "M b W"]:
        if self.candidates is not None:
            return torch.cat([self.density.scores(rows, self.columns(rows)), self.votes.scores(rows)])
        tables = [self.density, self.votes, *([] if self.related is None else [self.related])]
        return torch.cat([one.scores(rows) for one in tables])


def joint_scores(
    each: LabelEvidence, rows: Int[Tensor, "n"], number: Int[Tensor, "n"], y: Int[Tensor, "N"]
) -> tuple[Float[Tensor, "M n W"], Columns | None]:
    """Return the scores of some samples, and the columns, which are the same for all samples of a group.

    Args:
        number: group of every sample, from 0.
        y: given class of all samples.
    """
    if each.candidates is None:
        return each.scores(rows), None
    near, every = each.votes.near[rows].long(), torch.arange(len(rows), device=rows.device)
    chosen = shared_candidates(each.candidates, rows, number, y, near)
    assert isinstance(each.votes, ClassVotes)
    votes = replace(each.votes, near=near, distance=each.votes.distance[rows], candidates=chosen)
    columns = chosen.columns(every)
    return torch.cat([each.density.scores(rows, columns), votes.scores(every)]), columns


class Layout(NamedTuple):
    """What both models start from: the features in both scalings, neighbours and their votes, copies and folds."""

    scaled: dict[bool, Float[Tensor, "N K"]]  # whether of unit length -> features
    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # in units of the temperature; infinite: no vote
    cluster: Int[Tensor, "N"]
    fold: Int[Tensor, "N"]
    recall: float  # share of the nearest neighbours that the search found


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
    near, distance, recall = nearest_neighbours(unit, VOTING_NEIGHBOURS_COUNT, seed, NEIGHBOURS_RECALL)
    cluster = copy_clusters(near, distance, y, group) if cluster is None else cluster
    scaled = {False: centred, True: unit.mul_(unit.shape[1] ** 0.5)}
    voting = vote_distances(near, distance, cluster)
    return Layout(scaled, near.int(), voting, cluster, draw_folds(cluster, folds, seed), recall)


def most_likely(make: Callable[[Setting], T], gain: Callable[[T], float], keep: bool = True) -> T:
    """Return what `make` returns for the setting with the highest gain: first of both scalings, then of all shrinkages.

    Args:
        keep: whether the best one so far stays in memory; otherwise it is made again at the end.
    """
    held: dict[Setting, T] = {}
    gains: dict[Setting, float] = {}

    def best_of(settings: list[Setting]) -> Setting:
        for setting in settings:
            made = make(setting)
            gains[setting] = gain(made)
            if keep and gains[setting] == max(gains.values()):
                held.clear()
                held[setting] = made
        return max(gains, key=lambda one: gains[one])

    way = best_of([(way, SHRINK_GRID[0]) for way in (False, True)])[0]
    best = best_of([(way, shrink) for shrink in SHRINK_GRID[1:]])
    return held[best] if best in held else make(best)


def discriminate(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, *, rounds: int = 2, folds: int = 10,
    setting: Setting | None = None, seed: int = 0, group: Int[Tensor, "N"] | None = None,
    cluster: Int[Tensor, "N"] | None = None, candidates: int | None = None,
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
        candidates: number of classes of a sample that have scores; `classes`: all. None: all if `scores_all_classes`,
            otherwise `CANDIDATE_CLASSES_COUNT`. The cost is N x candidates x F.
    """
    layout = lay_out(x, y, folds, seed, group, cluster)
    if candidates is None:
        candidates = classes if scores_all_classes(len(y), classes) else CANDIDATE_CLASSES_COUNT
    chosen = None if candidates >= classes else layout_candidates(layout, y, classes, candidates, seed)
    votes = ClassVotes(layout.near, layout.distance, y, classes, chosen)

    def trial(setting: Setting) -> Trial:
        sums = fold_sums(layout.scaled[setting[0]], layout.fold, folds, y, classes, setting[1])
        each = LabelEvidence(sums.fitted(), votes, layout.cluster, setting, candidates=chosen, recall=layout.recall)
        return Trial(sums, votes, each, seed)

    best = most_likely(trial, lambda one: one.gain, keep=chosen is None) if setting is None else trial(setting)
    each, noise = best.evidence, fit_noise(best.evidence, y, seed=seed)
    if rounds == 1 or not noise.informative:
        return each, noise
    again = replace(each, density=refit(best, noise))
    better = selection_gain(again, y, seed) > best.gain
    return (again, fit_noise(again, y, seed=seed)) if better else (each, noise)


def layout_candidates(
    layout: Layout, y: Int[Tensor, "N"], classes: int, count: int, seed: int
) -> CandidateClasses:  # fmt: skip
    """Return the candidate classes of every sample: of its neighbours, and with the nearest centres."""
    x = layout.scaled[False]
    density = fold_sums(x, torch.zeros_like(y), 1, y, classes, SHRINK_GRID[0]).without()
    central = nearest_centres(density.project(x), density.centre, min(NEAREST_CENTRES_COUNT, count - 1), seed)
    return choose_candidates(y, layout.near, layout.distance, central, classes, count, seed)


def selection_gain(each: LabelEvidence, y: Int[Tensor, "N"], seed: int) -> float:
    """Return the gain of a noise model without similar classes, fitted on a limited number of scores; for selection only."""
    return fit_noise(each, y, similar=False, most=SELECTION_SCORES_LIMIT, seed=seed).gain


def discriminate_sets(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"] | GivenSets, *, folds: int = 10, setting: Setting | None = None,
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
    cleaned = CleanedLabels(each, first, has)
    both = with_related(each, cleaned if isinstance(has, GivenSets) else cleaned.all())
    return (each, first) if both is each else (both, fit_label_noise(both, has, seed=seed))


@dataclass(frozen=True, eq=False)
class CleanedLabels:
    """P(the sample has the label) by a fit without the other labels of the sample; `cleaned[rows]`: of some samples."""

    each: LabelEvidence
    noise: LabelSetNoise
    has: Float[Tensor, "N L"] | GivenSets

    def __len__(self) -> int:
        return len(self.has)

    def __getitem__(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b L"]:
        has = self.has[rows]
        wrong = self.noise.wrong(self.each.scores(rows), has)
        return (has - wrong * self.noise.informative.to(wrong)).abs()

    def all(self) -> Float[Tensor, "N L"]:
        """Return the table of all samples."""
        return torch.cat([self[rows] for rows in self.each.blocks()])

    def new_empty(self, *shape: int) -> Tensor:
        """Return a table that is not filled, on the device of the features."""
        return self.each.density.x.new_empty(*shape)


def set_selection_gain(each: LabelEvidence, has: Float[Tensor, "N L"] | GivenSets, seed: int) -> float:
    """Return roughly how well evidence explains the given label sets, in nats; for selection only."""
    return float(fit_label_noise(each, has, SELECTION_SCORES_LIMIT, seed, SELECTION_TOLERANCE).gain.sum())


def set_evidence(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"] | GivenSets, *, folds: int = 10, setting: Setting | None = None,
    seed: int = 0, group: Int[Tensor, "N"] | None = None,
) -> LabelEvidence:  # fmt: skip
    """Return the evidence about every label by densities and votes; the arguments are those of `discriminate_sets`."""
    layout = lay_out(x, set_numbers(has), folds, seed, group)
    votes = LabelVotes(layout.near, layout.distance, has)
    own = [(layout.fold == k).nonzero()[:, 0] for k in range(folds)]
    parts = [(rows, has.of(rows) if isinstance(has, GivenSets) else has[rows]) for rows in own]
    sums = {
        way: [list(one) for one in zip(*(sums_of(z[rows], labels) for rows, labels in parts))]
        for way, z in layout.scaled.items()
    }

    def fitted(setting: Setting) -> LabelEvidence:
        way, shrink = setting
        models = [density_odds(LabelSums(*(without(one, k) for one in sums[way])), shrink) for k in range(folds)]
        return LabelEvidence(CrossFitted(layout.scaled[way], layout.fold, models), votes, layout.cluster, setting)

    return most_likely(fitted, lambda one: set_selection_gain(one, has, seed)) if setting is None else fitted(setting)


def with_related(each: LabelEvidence, cleaned: Float[Tensor, "N L"] | CleanedLabels) -> LabelEvidence:
    """Return the evidence with a third table, of the other labels of each sample; as it is if there are too many, or one.

    A label that is probably wrong must not imply others, so the labels are given as probabilities.

    Args:
        cleaned: P(the sample has the label), each without the other labels of the sample.
    """
    if not 2 <= each.classes <= MAX_RELATED_LABELS:
        return each
    fold, limit = each.density.fold, MAX_RELATED_ODDS * math.log(len(cleaned))
    own = [(fold == k).nonzero()[:, 0] for k in range(len(each.density.models))]
    count, both = [], []
    for rows in own:
        blocks = rows.split(
            max(1, SCORE_BLOCK_SIZE // each.classes) if isinstance(cleaned, CleanedLabels) else max(1, len(rows))
        )
        tables = (cleaned[some] for some in blocks)
        terms = [(one.sum(0), one.T @ one) for one in tables]
        count.append(sum(one for one, _ in terms))
        both.append(sum(one for _, one in terms))
    odds = [
        related_odds(len(cleaned) - len(rows), without(count, k), without(both, k), limit) for k, rows in enumerate(own)
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
    return x.div_(x.std().clamp_min(1e-12))


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
    width: int  # number of scores of a sample

    def without(self, *left_out: int) -> ClassDensity:
        """Return the densities of all folds but some."""
        kept = [k for k in range(len(self.rows)) if k not in left_out]
        total = torch.empty_like(self.total[0])
        for some in torch.arange(len(total), device=total.device).split(CLASS_BLOCK_SIZE):
            part = slice(int(some[0]), int(some[-1]) + 1)
            total[part] = self.total[kept, part].sum(0)
        return fit_class_density(self.count[kept].sum(0), total, self.square[kept].sum(0), self.shrink)

    def fitted(self) -> CrossFitted:
        """Return the densities that are fitted with these labels."""
        folds = [(k,) for k in range(len(self.rows))]
        return CrossFitted(self.x, self.fold, list(map_blocks(_fit_without, {"sums": self._statistics}, folds)))

    @property
    def _statistics(self) -> FoldSums:
        """Return the sums without samples, for fits in other processes."""
        return replace(self, x=self.x[:0], fold=self.fold[:0], rows=[one[:0] for one in self.rows])

    def refitted(self, posterior: Callable[[ClassDensity, int, Tensor], SoftLabels]) -> CrossFitted:
        """Return densities that are fitted with posteriors as soft labels; no posterior saw the fold that it serves.

        Args:
            posterior: returns the posteriors of some rows of fold j that serve the model of fold k, from a model of all folds
                but j and k, and k.
        """
        count, total, square = torch.zeros_like(self.count), torch.zeros_like(self.total), self.square.sum(0)
        pairs = list(combinations(range(len(self.rows)), 2))
        found = map_blocks(_soft_terms_of_pair, {"sums": self, "posterior": posterior}, pairs)
        for pair, terms in zip(pairs, found, strict=True):
            for k, own, parts in ((*pair, terms[0]), (*pair[::-1], terms[1])):
                for rows, one in zip(self.row_blocks(own), parts, strict=True):
                    add_soft_terms(count[k], total[k], one, self.x[rows])
        shared = {"count": count, "total": total, "square": square - self.square, "shrink": self.shrink}
        return CrossFitted(self.x, self.fold, list(map_blocks(_fit_soft, shared, range(len(self.rows)))))

    def row_blocks(self, k: int) -> tuple[Int[Tensor, "n"], ...]:
        """Return the rows of a fold in blocks whose scores fit in memory."""
        return self.rows[k].split(max(1, SCORE_BLOCK_SIZE // self.width))


def _fit_without(shared: Mapping[str, Any], folds: tuple[int, ...]) -> ClassDensity:
    """Return the densities of all folds but some."""
    return shared["sums"].without(*folds)


def _fit_soft(shared: Mapping[str, Any], k: int) -> ClassDensity:
    """Return the densities that serve fold k, from sums over soft labels."""
    return fit_class_density(shared["count"][k], shared["total"][k], shared["square"][k], shared["shrink"])


def _soft_terms_of_pair(shared: Mapping[str, Any], pair: tuple[int, int]) -> tuple[list[SoftTerms], list[SoftTerms]]:
    """Return for two folds what the samples of the second add to the sums that serve the first, and vice versa, by blocks."""
    sums, posterior = shared["sums"], shared["posterior"]
    model = sums.without(*pair)
    first, second = (
        [soft_terms(posterior(model, k, rows), sums.x[rows]) for rows in sums.row_blocks(own)]
        for k, own in (pair, pair[::-1])
    )
    return first, second


class SoftLabels(NamedTuple):
    """Probabilities of all classes, or of the classes of some columns."""

    q: Float[Tensor, "n W"]
    label: Int[Tensor, "n W"] | None = None  # None: column c is class c


class SoftTerms(NamedTuple):
    """What some softly labelled samples add to the number and the sum of the samples of every class.

    Of all classes: the two sums. Of candidates: a share of a sample for each class that it counts for, which is far less.
    """

    share: Float[Tensor, "_"]  # number of samples of every class, or share of one
    total: Float[Tensor, "C F"] | None  # sum of the samples of every class; None: of candidates
    row: Int[Tensor, "M"] | None = None  # sample of each share, from 0
    label: Int[Tensor, "M"] | None = None  # class of each share


def soft_terms(soft: SoftLabels, x: Float[Tensor, "n F"]) -> SoftTerms:
    """Return what softly labelled samples add to the sums of classes.

    Of candidates, those with less than `MIN_SOFT_SHARE` are left out, and the others add up to 1.
    """
    if soft.label is None:
        return SoftTerms(soft.q.sum(0), soft.q.T @ x)
    q = soft.q * (soft.q >= MIN_SOFT_SHARE)
    q = q / q.sum(1, keepdim=True).clamp_min(1e-30)
    row, column = q.nonzero(as_tuple=True)
    return SoftTerms(q[row, column], None, row, soft.label[row, column])


def add_soft_terms(
    count: Float[Tensor, "C"], total: Float[Tensor, "C F"], terms: SoftTerms, x: Float[Tensor, "n F"]
) -> None:
    """Add softly labelled samples to the number and the sum of the samples of every class."""
    if terms.total is not None:
        count += terms.share
        total += terms.total
        return
    assert terms.row is not None and terms.label is not None
    count.index_add_(0, terms.label, terms.share)
    total.index_add_(0, terms.label, x[terms.row] * terms.share[:, None])


def fold_sums(
    x: Float[Tensor, "N F"], fold: Int[Tensor, "N"], folds: int, labels: Int[Tensor, "N"] | SoftLabels,
    classes: int, shrink: float,
) -> FoldSums:  # fmt: skip
    """Return the sums of every fold, by the class of every sample or by its probabilities of classes."""
    rows = [(fold == k).nonzero()[:, 0] for k in range(folds)]
    square = torch.stack([x[own].T @ x[own] for own in rows])
    if isinstance(labels, SoftLabels):
        count, total = x.new_zeros(folds, classes), x.new_zeros(folds, classes, x.shape[1])
        for k, own in enumerate(rows):
            for some in own.split(len(own) if labels.label is None else SOFT_BLOCK_ROWS):
                one = SoftLabels(labels.q[some], None if labels.label is None else labels.label[some])
                add_soft_terms(count[k], total[k], soft_terms(one, x[some]), x[some])
    else:
        zero = x.new_zeros(classes, x.shape[1])
        count = torch.stack([torch.bincount(labels[own], minlength=classes).to(x) for own in rows])
        total = torch.stack([zero.index_add(0, labels[own], x[own]) for own in rows])
    return FoldSums(x, fold, rows, count, total, square, shrink, classes)


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
    """Return class densities that are fitted with the posteriors of the first round; no posterior saw the fold that it serves.

    Of candidates, only the `REFIT_CLASSES_COUNT` most probable ones of the first round take part.
    """
    sums, chosen = trial.sums, trial.evidence.candidates
    given, folds = sums.count.sum(0), range(len(sums.rows))
    if chosen is not None:
        chosen = narrow_candidates(trial.evidence, chosen, noise, trial.votes.y)
        sums = replace(sums, width=chosen.width)
    voters = replace(trial.votes, candidates=chosen)
    votes = [voters.without(sums.fold == k) for k in folds]
    prior = [true_frequencies(given - sums.count[k], noise.any).log() for k in folds]

    return sums.refitted(FirstRound(sums.x, trial.votes.y, chosen, votes, prior, noise))


@dataclass(frozen=True, eq=False)
class FirstRound:
    """Posteriors by the evidence of the first round, for `FoldSums.refitted`; it can be sent to other processes."""

    x: Float[Tensor, "N F"]
    y: Int[Tensor, "N"]
    chosen: CandidateClasses | None
    votes: list[ClassVotes]  # without the votes of each fold
    prior: list[Float[Tensor, "C"]]  # without each fold
    noise: Noise

    def __call__(self, model: ClassDensity, k: int, rows: Int[Tensor, "n"]) -> SoftLabels:
        x, y, columns = self.x[rows], self.y[rows], None if self.chosen is None else self.chosen.columns(rows)
        density = model.scores(x) if columns is None else model.scores_at(x, columns.label)
        scores = torch.cat([density[None], self.votes[k].scores(rows)])
        q = self.noise._replace(prior=self.prior[k]).posterior(scores, y, columns)
        return SoftLabels(q, None if columns is None else columns.label)


def narrow_candidates(
    each: LabelEvidence, chosen: CandidateClasses, noise: Noise, y: Int[Tensor, "N"]
) -> CandidateClasses:
    """Return the given class and the most probable other candidates of every sample, without drawn classes."""
    count = min(REFIT_CLASSES_COUNT, chosen.width - chosen.drawn)
    keep = torch.zeros(len(y), count, dtype=torch.long, device=y.device)
    blocks, shared = list(each.blocks()), {"each": each, "chosen": chosen, "noise": noise, "y": y, "count": count}
    for rows, kept in zip(blocks, map_blocks(_narrow_block, shared, blocks), strict=True):
        keep[rows, 1:] = kept
    return chosen.narrowed(keep)


def _narrow_block(shared: Mapping[str, Any], rows: Int[Tensor, "n"]) -> Int[Tensor, "n t"]:
    """Return the columns of the most probable candidates of some samples besides the given class."""
    each, chosen, noise = (shared[name] for name in ("each", "chosen", "noise"))
    q = noise.posterior(each.scores(rows), shared["y"][rows], chosen.columns(rows))
    return 1 + q[:, 1 : chosen.width - chosen.drawn].topk(shared["count"] - 1, 1).indices
