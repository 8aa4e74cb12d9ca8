"""Pairs of class names that stand for one class: held-out discriminants cannot separate them, but separate other pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from likewise.core.class_sums import class_sums
from likewise.core.similarity import full_precision_matmul
from likewise.labels.candidate_classes import MAX_DENSE_CLASSES, NEAREST_CENTRES_COUNT, repeats
from likewise.labels.label_noise import SCORE_BLOCK_SIZE
from likewise.labels.neighbour_search import nearest_centres

OverlapState = Literal["merge", "distinct", "unknown"]

FOLD_COUNT = 4
"""Number of folds: each is projected by discriminants fitted on the others."""

NEAREST_CLASSES = 5
"""Number of nearest classes that each class is compared with."""

MIN_CLASS_ROWS = 4
"""Smallest number of kept samples of a name; below it the pair is unknown."""

MIN_KEPT_SHARE = 0.4
"""Smallest share of kept samples of a name; below it most of its labels are wrong, and the pair is unknown."""

MAX_CLASS_ROWS = 500
"""Number of samples of a class that are used, drawn at random."""

SHRINK_WEIGHT = 0.4
"""Weight of a multiple of the unit matrix in the covariance, as in the label scores."""

SHARPNESS_FACTORS, ASSUMED_NOISE_RATE = tuple(0.02 * 1.4**i for i in range(14)), 0.2  # up to 1.6
"""Factors of scores that are tried, and the share of uniform labels for which the likeliest one is chosen."""

MAX_FOREIGN_ODDS = 5.0
"""Samples whose best other class leads both names by more than this log likelihood are left out: their label is wrong."""

PRIOR_FREEDOM_COUNT = 10.0
"""Degrees of freedom of the common variance, to which the variance of a pair is shrunk."""

SPIKE_FREEDOM_COUNT = 5.0
"""Degrees of freedom of Student's t for the distance of one class from itself: its deviation is an estimate."""

TAIL_FREEDOM_COUNT = 4.0
"""Degrees of freedom of Student's t for the log distance of different classes: some classes are much alike."""

PRIOR_MERGE_SHARE, PRIOR_PAIR_COUNT = 0.01, 2.0
"""Prior share of merges among candidate pairs, and the number of pairs that it weighs."""

MIN_MERGE_SHARE, MAX_MERGE_SHARE = 0.002, 0.2
"""Bounds of the share: a single merge among thousands of classes is found, and weak features do not merge everything."""

PRIOR_LOG_SPREAD, PRIOR_SPREAD_COUNT = 0.3, 4.0
"""Prior standard deviation of the log distance of different classes, also its minimum, and the pairs that it weighs."""

MAX_FITTED_PAIRS = 2**13
"""Maximum number of pairs that the distribution of distances is fitted to; of more, some are drawn."""

GRID_POINT_COUNT, MAX_FIT_STEPS = 120, 200
"""Grid of distances, and steps of expectation-maximisation."""

MIN_MERGE_PROBABILITY, MIN_DISTINCT_ODDS = 0.5, 10.0
"""Smallest probability of a merge, and smallest ratio of likelihoods of two classes and of one for "distinct"."""


class ClassOverlap(NamedTuple):
    """Candidate pairs of classes, first < second, and whether the two names stand for one class.

    `distance` is an unbiased estimate of the squared distance of the two centres, in units of the covariance within classes;
    `deviation` is its standard deviation for one class with two names; `likelihood_ratio` is log10 of the likelihoods of one
    class and of two. Pairs with too few samples have NaN and are "unknown".
    """

    first: Int[Tensor, "P"]
    second: Int[Tensor, "P"]
    distance: Float[Tensor, "P"]
    deviation: Float[Tensor, "P"]
    likelihood_ratio: Float[Tensor, "P"]
    probability: Float[Tensor, "P"]
    state: tuple[OverlapState, ...]


@torch.no_grad()
def class_overlap(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], group: Int[Tensor, "N"] | None = None, *,
    nearest: int = NEAREST_CLASSES, seed: int = 0,
) -> ClassOverlap:  # fmt: skip
    """Return the nearest pairs of classes, and the probability that both names stand for one class.

    Formula: d = mean over folds of (mean of a - mean of b) in the fold, projected by M (mean of a - mean of b) outside it; M is
        the inverse of the shrunk covariance within classes outside the fold. E d = 0 for two names of one class. The posterior
        compares a d around 0 with a distribution of d around the usual distance of the classes there, fitted to all pairs.
    Differs: it is ours. Samples that fit another class much better than either name are left out, by a rule that does not use
        which of the two names they have.

    Args:
        y: labels from 0 to C - 1; a class may be empty.
        group: group of each sample, such as frames of one object; -1: none. The mean of a class in a group counts as one sample,
            because samples of a group are not independent.
        nearest: number of nearest classes of each class that are candidates.
        seed: seed of the folds.
    """
    classes = int(y.max()) + 1
    if group is not None:
        x, y = group_means(x, y, group)
    fold, used = stratified_folds(y, FOLD_COUNT, MAX_CLASS_ROWS, seed)
    x, y, fold = x[used], y[used], fold[used]
    x = (x - x.mean(0)) / x.std().clamp_min(1e-12)
    with full_precision_matmul(x):
        models = [_Model(x, y, fold, k, classes) for k in range(FOLD_COUNT)]
        close, near = near_classes(x, y, models[0])
        first, second, reach = candidate_pairs(models, min(nearest, classes - 1), close)
        held = held_out_sums(x, y, fold, models, first, second, near)
    size = torch.bincount(y, minlength=classes)[torch.stack([first, second])]
    distance, deviation, noise = estimate(held.cpu().double(), size.cpu().double())
    known = deviation.isfinite()
    ratio, probability = deviation.new_full((2, len(known)), torch.nan)
    if known.any():
        usual = (reach[first] * reach[second]).sqrt().double().cpu()
        ratio[known], probability[known] = compare_hypotheses(*(t[known] for t in (distance, deviation, noise, usual)))
    return ClassOverlap(first, second, distance, deviation, ratio, probability, states_of(ratio, probability))


def near_classes(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], model: _Model
) -> tuple[Int[Tensor, "C m"] | None, Int[Tensor, "N m"] | None]:
    """Return the classes of the nearest whitened centres for every class and every sample; None: all classes are compared."""
    classes = len(model.count)
    if classes <= MAX_DENSE_CLASSES:
        return None, None
    size = torch.bincount(y, minlength=classes)
    root = torch.linalg.cholesky(model.within.double())
    known = (size > 0).nonzero()[:, 0]
    centre = class_sums(x, y, classes)[known] / size[known, None]
    white, centre = (
        torch.linalg.solve_triangular(root, one.double().T, upper=False).T.to(x).contiguous() for one in (x, centre)
    )
    close = known.new_zeros(classes, min(NEAREST_CENTRES_COUNT, len(known)))
    close[known] = known[nearest_centres(centre, centre, NEAREST_CENTRES_COUNT)]
    return close, known[nearest_centres(white, centre, NEAREST_CENTRES_COUNT)]


def group_means(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], group: Int[Tensor, "N"]
) -> tuple[Float[Tensor, "M F"], Int[Tensor, "M"]]:
    """Return the mean of each class in each group, and its class; samples with group -1 stay single."""
    alone = group.max().clamp_min(-1) + 1 + torch.arange(len(y), device=y.device)
    key, place, size = torch.stack([y, torch.where(group < 0, alone, group)]).unique(
        dim=1, return_inverse=True, return_counts=True
    )
    return class_sums(x, place, len(size)) / size[:, None], key[0]


def stratified_folds(
    y: Int[Tensor, "N"], folds: int, most: int, seed: int
) -> tuple[Int[Tensor, "N"], Int[Tensor, "n"]]:
    """Return a fold for every sample, the classes spread evenly over folds, and at most `most` rows of each class."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    order = order[y[order].argsort(stable=True)]
    size = torch.bincount(y)
    place = torch.arange(len(y), device=y.device) - (size.cumsum(0) - size)[y[order]]
    fold = torch.empty_like(y)
    fold[order] = (place + y[order]) % folds
    return fold, order[place < most].sort().values


class _Model:
    """Discriminants fitted without fold `k`, and the centres of the classes in it."""

    def __init__(self, x: Float[Tensor, "N F"], y: Int[Tensor, "N"], fold: Int[Tensor, "N"], k: int, classes: int):
        fit = fold != k
        self.held = torch.bincount(y[~fit], minlength=classes).to(x)
        self.held_mean = class_sums(x[~fit], y[~fit], classes) / self.held.clamp_min(1)[:, None]
        self.count = torch.bincount(y[fit], minlength=classes).to(x)
        mean = class_sums(x[fit], y[fit], classes) / self.count.clamp_min(1)[:, None]
        freedom = (self.count.sum() - (self.count > 0).sum()).clamp_min(1)
        within = (x[fit].T @ x[fit] - mean.T @ (mean * self.count[:, None])) / freedom
        size = within.diagonal().mean().clamp_min(1e-12)
        within = (1 - SHRINK_WEIGHT) * within + SHRINK_WEIGHT * size * torch.eye(len(within)).to(within)
        device = "cpu" if x.device.type == "mps" else x.device  # MPS has no float64
        both = (t.to(device, torch.float64) for t in (within, mean.T))
        self.weight = torch.linalg.solve(*both).to(x)
        self.offset = 0.5 * (mean.T * self.weight).sum(0)
        self.usable = (self.held > 0) & (self.count > 0)
        self.within = within

    def all_distances(self, block: Int[Tensor, "b"]) -> tuple[Float[Tensor, "b C"], Float[Tensor, "b C"]]:
        """Return the distances of some classes from all classes, and the weights of these distances."""
        own = (self.held_mean * self.weight.T).sum(1)
        apart = (
            own[block, None] + own - self.held_mean[block] @ self.weight - (self.held_mean @ self.weight[:, block]).T
        )
        share = 1 / (1 / self.held[block, None] + 1 / self.held) * (self.usable[block, None] & self.usable)
        return apart, share

    def distances(
        self, block: Int[Tensor, "b"], other: Int[Tensor, "b m"]
    ) -> tuple[Float[Tensor, "b m"], Float[Tensor, "b m"]]:
        """Return the distances of some classes from a few other classes each, and the weights of these distances."""
        held = self.held_mean[block, None] - embedding(other, self.held_mean)
        fitted = self.weight.T[block, None] - embedding(other, self.weight.T)
        share = 1 / (1 / self.held[block, None] + 1 / self.held[other])
        return (held * fitted).sum(2), share * (self.usable[block, None] & self.usable[other])

    def score(self, product: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the scores of all classes from products with the weights; -inf for a class without samples."""
        return (product - self.offset).masked_fill(self.count == 0, -torch.inf)

    def best(self, x: Float[Tensor, "n F"], near: Int[Tensor, "n m"] | None) -> Float[Tensor, "n"]:
        """Return the highest score of all classes, or of some classes of every sample."""
        if near is None:
            return self.score(x @ self.weight).amax(1)
        found = (embedding(near, self.weight.T) @ x[:, :, None])[:, :, 0] - self.offset[near]
        return found.masked_fill(self.count[near] == 0, -torch.inf).amax(1)

    def product(self, x: Float[Tensor, "n F"], c: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return the product of every sample with the weights of one class."""
        return (x * self.weight.T[c]).sum(1)


def candidate_pairs(
    models: list[_Model], nearest: int, close: Int[Tensor, "C m"] | None = None
) -> tuple[Int[Tensor, "P"], Int[Tensor, "P"], Float[Tensor, "C"]]:
    """Return each class with its nearest classes, every pair once, and the median distance of a class to its nearest ones.

    Of two medians it is the larger one; a negative distance counts as 0.

    Args:
        close: classes that each class is compared with; None: all.
    """
    classes = len(models[0].count)
    pairs, reach = [], []
    width = classes if close is None else close.shape[1] * len(models[0].weight)
    for block in torch.arange(classes, device=models[0].count.device).split(max(1, SCORE_BLOCK_SIZE // width)):
        total, weight = 0.0, 0.0
        other = None if close is None else close[block]
        for one in models:
            apart, share = one.all_distances(block) if other is None else one.distances(block, other)
            total, weight = total + apart * share, weight + share
        distance = torch.where(weight > 0, total / weight, torch.inf)  # pyright: ignore[reportCallIssue, reportArgumentType]
        if other is None:
            distance.scatter_(1, block[:, None], torch.inf)
        else:
            distance = distance.masked_fill(other == block[:, None], torch.inf)
        low = distance.topk(min(nearest, distance.shape[1]), 1, largest=False)
        found = low.indices if other is None else other.gather(1, low.indices)
        a, b = block[:, None].expand_as(found)[low.values < torch.inf], found[low.values < torch.inf]
        pairs.append(torch.minimum(a, b) * classes + torch.maximum(a, b))
        there = (low.values < torch.inf).sum(1, keepdim=True)
        reach.append(low.values.gather(1, there // 2)[:, 0] if nearest else there[:, 0].to(low.values))
    code = torch.cat(pairs).unique()
    return code // classes, code % classes, torch.cat(reach).clamp_min(0)


def held_out_sums(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], fold: Int[Tensor, "N"], models: list[_Model],
    first: Int[Tensor, "P"], second: Int[Tensor, "P"], near: Int[Tensor, "N m"] | None = None,
) -> Float[Tensor, "3 K 2 P"]:  # fmt: skip
    """Return sums over held-out samples of each fold, name and pair: number, projections and squares of the projections.

    Samples that fit another class much better than both names are left out.

    Args:
        near: classes that a sample is compared with; None: all.
    """
    classes, pairs = len(models[0].count), len(first)
    name, pair = torch.cat([first, second]), torch.arange(pairs, device=y.device).repeat(2)
    pair = pair[name.argsort(stable=True)]  # the pairs of class 0, then those of class 1, and so on
    number = torch.bincount(name, minlength=classes)
    sums = torch.zeros(3, len(models) * 2 * pairs, dtype=torch.float32 if x.device.type == "mps" else torch.float64)
    sums = sums.to(x.device)
    sharpness = fit_sharpness(x, y, fold, models[0], near)
    width = classes if near is None else NEAREST_CLASSES * near.shape[1] * x.shape[1]
    for k, model in enumerate(models):
        for rows in (fold == k).nonzero()[:, 0].split(max(1, SCORE_BLOCK_SIZE // width)):
            best = model.best(x[rows], None if near is None else near[rows])
            for at, p in incident_pairs(y[rows], number, pair):
                a, b = first[p], second[p]
                by_a, by_b = (model.product(x[rows[at]], c) for c in (a, b))
                lead = best[at] - torch.maximum(by_a - model.offset[a], by_b - model.offset[b])
                kept = (sharpness * lead <= MAX_FOREIGN_ODDS) & (model.count[a] > 0) & (model.count[b] > 0)
                at, p, b, value = at[kept], p[kept], b[kept], (by_a - by_b)[kept].to(sums)
                slot = (2 * k + (y[rows][at] == b).long()) * pairs + p
                for place, added in enumerate((torch.ones_like(value), value, value * value)):
                    sums[place].index_add_(0, slot, added)
    return sums.view(3, len(models), 2, pairs)


def fit_sharpness(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], fold: Int[Tensor, "N"], model: _Model, near: Int[Tensor, "N m"] | None
) -> float:
    """Return the factor of scores under which the labels of fold 0 are most likely, if a share of them is uniform noise."""
    width = len(model.count) if near is None else (1 + near.shape[1]) * x.shape[1]
    rows = (fold == 0).nonzero()[:, 0][: max(1, SCORE_BLOCK_SIZE // width)]
    if near is None:
        score, column = model.score(x[rows] @ model.weight), y[rows, None]
    else:
        label, column = torch.cat([y[rows, None], near[rows]], 1), torch.zeros_like(rows)[:, None]
        score = (embedding(label, model.weight.T) @ x[rows, :, None])[:, :, 0] - model.offset[label]
        score = score.masked_fill((model.count[label] == 0) | repeats(label), -torch.inf)
    rate = ASSUMED_NOISE_RATE

    def likelihood(factor: float) -> float:
        own = torch.softmax(factor * score, 1).gather(1, column)
        return float(((1 - rate) * own + rate / len(model.count)).log().sum())

    return max(SHARPNESS_FACTORS, key=likelihood)


def incident_pairs(
    y: Int[Tensor, "n"], number: Int[Tensor, "C"], pair: Int[Tensor, "Q"]
) -> Iterator[tuple[Int[Tensor, "m"], Int[Tensor, "m"]]]:
    """Yield sample and pair for each pair that a sample's class is part of, in blocks."""
    start = number.cumsum(0) - number
    for rows in torch.arange(len(y), device=y.device).split(2**17):
        count = number[y[rows]]
        at = rows.repeat_interleave(count)
        place = torch.arange(len(at), device=y.device) - (count.cumsum(0) - count).repeat_interleave(count)
        yield at, pair[start[y[at]] + place]


def estimate(
    held: Float[Tensor, "3 K 2 P"], size: Float[Tensor, "2 P"]
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P"], Float[Tensor, "P 2"]]:
    """Return the distance of each pair, its deviation for one class, and its variance for two as (constant, slope).

    Formula: variance of d = 2 v sum_k w_k^2 (1/n_ak + 1/n_bk), v the variance of projections of one class. It is twice the
        variance for fixed projections, because each pair of folds counts in both of its folds. For two classes at distance d
        it is 4 d (1/n_a + 1/n_b) more.

    Args:
        held: as from `held_out_sums`.
        size: number of samples of each name; a pair is NaN if too few of them are in `held`.
    """
    count, total, square = held
    # variance of the difference of the centres outside a fold
    scale = len(count) / (len(count) - 1) * (1 / size).sum(0)
    mean, freedom = total / count.clamp_min(1), (count - 1).clamp_min(0).sum((0, 1))
    both, harmonic = (count > 0).all(1), (1 / count.clamp_min(1)).sum(1)
    weight = both / harmonic
    weight = weight / weight.sum(0).clamp_min(1e-12)
    distance = (weight * (mean[:, 0] - mean[:, 1])).sum(0)
    enough = torch.maximum(MIN_KEPT_SHARE * size, torch.full_like(size, MIN_CLASS_ROWS))
    known = (both.sum(0) >= 2) & (count.sum(0) >= enough).all(0)
    residual = (square - count * mean**2).clamp_min(0).sum((0, 1))
    distance = distance.where(known, torch.nan)
    fitted = known & (freedom > 0)
    if not fitted.any():
        return distance, torch.full_like(distance, torch.nan), distance.new_zeros(len(distance), 2)
    slope, level = common_variance(
        distance[fitted].clamp_min(0), scale[fitted], (residual / freedom)[fitted], freedom[fitted]
    )
    variance = (residual + PRIOR_FREEDOM_COUNT * level * scale) / (freedom + PRIOR_FREEDOM_COUNT)
    share = 2 * (weight**2 * harmonic * both).sum(0)
    deviation = (share * variance).sqrt().where(known, torch.nan)
    rise = 4 * slope * (1 / count.sum(0).clamp_min(1)).sum(0)
    return distance, deviation, torch.stack([share * level * scale, rise], 1)


def common_variance(
    distance: Float[Tensor, "P"], scale: Float[Tensor, "P"], variance: Float[Tensor, "P"], freedom: Float[Tensor, "P"]
) -> tuple[float, float]:
    """Return a and t of variance = a distance + t scale, by least squares of relative errors."""
    both = torch.stack([distance, scale], 1)
    found = torch.stack([torch.ones(()), (variance / scale).median()]).to(both)
    for _ in range(5):
        weight = freedom.sqrt() / (both @ found).clamp_min(1e-12)
        part = torch.linalg.lstsq(both * weight[:, None], (variance * weight)[:, None]).solution[:, 0]
        low = (variance / scale).min() * 0.5
        found = torch.stack([part[0].clamp(0.2, 5.0), part[1].clamp_min(low)])
    return float(found[0]), float(found[1])


def compare_hypotheses(
    distance: Float[Tensor, "P"], deviation: Float[Tensor, "P"], noise: Float[Tensor, "P 2"], usual: Float[Tensor, "P"]
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P"]]:
    """Return log10 of the likelihoods of one class and of two, and the posterior of one class.

    One class: Student's t around 0. Two classes: normal errors, and Student's t for the logarithm of the true distance as a
    multiple of the usual one. Its centre and spread, and the share of merges, are fitted to all pairs. A negative distance
    counts as 0 for both.

    Args:
        noise: variance of the distance between two classes, as (constant, slope).
        usual: distance of the two classes to the classes around them; where it is below the deviation, the deviation counts.
    """
    distance, usual = distance.clamp_min(0), torch.maximum(usual, deviation)
    grid = torch.logspace(-3, 2, GRID_POINT_COUNT, dtype=distance.dtype)
    nu = SPIKE_FREEDOM_COUNT
    peak = math.exp(math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2)) / math.sqrt(nu * math.pi)
    every_one = peak * (1 + (distance / deviation) ** 2 / nu) ** (-(nu + 1) / 2) / deviation

    def for_two(pairs: Tensor | slice) -> Tensor:
        """Return the likelihood of some distances for every true distance of the grid."""
        true = grid * usual[pairs, None]
        error = (noise[pairs, :1] + noise[pairs, 1:] * true).sqrt()
        return (-0.5 * ((distance[pairs, None] - true) / error) ** 2).exp() / error / math.sqrt(2 * math.pi)

    drawn: Tensor | slice = slice(None)
    if len(distance) > MAX_FITTED_PAIRS:
        drawn = torch.randperm(len(distance), generator=torch.Generator().manual_seed(0))[:MAX_FITTED_PAIRS]
    one, two = every_one[drawn], for_two(drawn)
    centre, spread, share = grid.new_zeros(()), 1.0, PRIOR_MERGE_SHARE
    for _ in range(MAX_FIT_STEPS):
        heavy = 1 + ((grid.log() - centre) / spread) ** 2 / TAIL_FREEDOM_COUNT
        density = heavy ** (-(TAIL_FREEDOM_COUNT + 1) / 2)
        density = density / density.sum()
        likelihood = (two @ density).clamp_min(1e-290)
        fitted, posterior = share, share * one / (share * one + (1 - share) * likelihood)
        weight = (((1 - posterior) / likelihood)[:, None] * two * density).sum(0)
        whole = weight.sum().clamp_min(1e-12)
        # far points weigh less, as for Student's t
        near = weight * (TAIL_FREEDOM_COUNT + 1) / TAIL_FREEDOM_COUNT / heavy
        centre = (near * grid.log()).sum() / near.sum().clamp_min(1e-12)
        square = (near * (grid.log() - centre) ** 2).sum() + PRIOR_SPREAD_COUNT * PRIOR_LOG_SPREAD**2
        spread = max(PRIOR_LOG_SPREAD, math.sqrt(square / (whole + PRIOR_SPREAD_COUNT)))
        merges = float(posterior.sum()) + PRIOR_PAIR_COUNT * PRIOR_MERGE_SHARE
        share = min(MAX_MERGE_SHARE, max(MIN_MERGE_SHARE, merges / (len(posterior) + PRIOR_PAIR_COUNT)))
    blocks = torch.arange(len(distance)).split(MAX_FITTED_PAIRS)
    likelihood = torch.cat([(for_two(pairs) @ density).clamp_min(1e-290) for pairs in blocks])
    posterior = fitted * every_one / (fitted * every_one + (1 - fitted) * likelihood)
    return (every_one / likelihood).log10(), posterior


def states_of(ratio: Float[Tensor, "P"], probability: Float[Tensor, "P"]) -> tuple[OverlapState, ...]:
    """Return "merge" for likely merges, "distinct" where two classes are much likelier, "unknown" elsewhere."""
    merge = (probability >= MIN_MERGE_PROBABILITY).tolist()
    distinct = (ratio <= -math.log10(MIN_DISTINCT_ODDS)).tolist()
    return tuple("merge" if m else "distinct" if d else "unknown" for m, d in zip(merge, distinct, strict=True))
