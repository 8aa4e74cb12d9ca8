"""Samples of no class: blank, corrupted or foreign images, found by their distance to every class.

A wrong label alone does not make a sample off-topic: the sample is compared with the nearest class, whatever its label is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, normalize

from likewise.core.block_executors import map_blocks
from likewise.core.class_sums import class_sums
from likewise.core.similarity import full_precision_matmul
from likewise.labels.candidate_classes import MAX_DENSE_CLASSES, NEAREST_CENTRES_COUNT
from likewise.labels.class_density import eigenvectors
from likewise.labels.label_evidence import principal_components
from likewise.labels.label_noise import row_blocks
from likewise.labels.neighbour_search import nearest_centres

MAX_COMPONENTS = 256
"""Maximum number of principal components in which densities are fitted."""
MIN_ROWS_PER_COMPONENT = 8
"""Minimum number of samples per principal component."""
COVARIANCE_SHRINK_SHARE = 0.6
"""Share of the multiple of the identity in the covariance within classes."""
FOLD_COUNT, ROUND_COUNT = 4, 3
"""Folds of the cross-fitting; and fits, each on the samples that the fit before it found typical of their label."""
TRIMMED_SHARE = 0.1
"""Share of the samples with the highest distances that the next fit leaves out."""
FIRST_OFF_TOPIC_SHARES = (0.002, 0.01, 0.03, 0.08, 0.2)
"""Shares of the samples, those with the highest scores, with which EM starts."""
MIXTURE_STEPS = 30
"""Number of EM steps from every start."""
WEIBULL_SHAPE_BOUNDS = (0.7, 2.0)
"""Bounds of the shape of the distribution of scores above the median: 1 is exponential, 2 falls faster than a normal one."""
MIN_TAIL_RATIO = 3.0
"""Smallest distance of the mean off-topic score from the median, in units of that of the 90 % quantile.

Foreign images in three sets reached 3.3 to 10; the tail of unseen glyphs under a weak network, without any foreign image, 2.2."""
MIN_DIFFUSE_SAMPLES, MIN_DIFFUSE_SHARE = 3, 0.3
"""Number and share of the samples of a class with which they are the class itself and not off-topic."""
MIN_LIKELIHOOD_GAIN = 10.0
"""Smallest gain of the log likelihood by off-topic samples; below it, no sample is off-topic."""


class OffTopic(NamedTuple):
    """Score and probability that each sample belongs to no class.

    `score` is high for a sample that is far from every class; the median of all samples is 0. `probability` is the
    posterior of the off-topic component in a mixture that is fitted to the scores, see `off_topic_probability`.
    """

    score: Float[Tensor, "N"]
    probability: Float[Tensor, "N"]


class Predictive(NamedTuple):
    """Gaussian predictive densities of all classes, in coordinates in which samples of a class have unit covariance.

    The centre of class c has the prior N(0, `between`), and n_c samples with the mean `mean`_c were seen.
    """

    origin: Float[Tensor, "K"]
    map: Float[Tensor, "K K"]
    count: Float[Tensor, "C"]
    mean: Float[Tensor, "C K"]
    between: Float[Tensor, "K"]

    @property
    def centre(self) -> Float[Tensor, "C K"]:
        """Return the expected centre of every class."""
        known = self.count[:, None] * self.between
        return self.mean * (known / (known + 1))

    def distances(
        self, p: Float[Tensor, "b K"], y: Int[Tensor, "b"], near: Int[Tensor, "b m"] | None = None
    ) -> tuple[Float[Tensor, "b"], Int[Tensor, "b"]]:
        """Return the squared distance to the nearest class, and the class of the highest density.

        Distances are in units of the predictive covariance, so that samples of a small class are expected to be as far from
        it as those of a large one. The nearest class is the class of the highest density, or y: a small, wide class
        accepts only samples with its label. A class without samples counts only if it is y.

        Args:
            near: classes that a sample is compared with, besides y; None: all.
        """
        n, u = self.count[:, None], (p - self.origin) @ self.map
        centre = self.centre
        precision = 1 / (1 + self.between / (n * self.between + 1))
        if near is None:
            square = u.square() @ precision.T - 2 * u @ (precision * centre).T + (precision * centre.square()).sum(1)
            own = torch.arange(len(n), device=y.device) == y[:, None]
            top = (square - precision.log().sum(1)).where(own | (self.count > 0), math.inf).argmin(1)
            return square.gather(1, torch.stack([top, y], 1)).amin(1), top
        label, spread = torch.cat([y[:, None], near], 1), precision.log().sum(1)
        away = (u[:, None] - embedding(label, centre)).square_()
        square = (away * embedding(label, precision)).sum(2)
        usable = self.count[label] > 0
        usable[:, 0] = True
        top = (square - spread[label]).where(usable, math.inf).argmin(1, keepdim=True)
        return torch.minimum(square.gather(1, top)[:, 0], square[:, 0]), label.gather(1, top)[:, 0]


def off_topic(x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, seed: int = 0) -> OffTopic:
    """Return the score and the probability that each sample belongs to no class.

    The score is the squared distance to the nearest class by its predictive density, fitted without the sample's fold,
    standardised. Centres of classes have a normal prior, so a class of one or two samples is wide, and the sample of a
    class without other samples is compared with the prior.

    Args:
        x: features; only their directions count.
        y: given labels, which may be wrong.
        classes: number of classes; labels are below it.
        seed: of the division into folds.
    """
    z = normalize(x.float())
    most = max(1, min(MAX_COMPONENTS, len(z) // MIN_ROWS_PER_COMPONENT))
    with full_precision_matmul(z):
        score = standardise(density_distances(principal_components(z, most), y, classes, seed))
    return OffTopic(score, without_diffuse_classes(off_topic_probability(score), y))


def without_diffuse_classes(probability: Float[Tensor, "N"], y: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return the probabilities with 0 for the samples of classes of which many would be off-topic.

    Off-topic images are spread over the labels; many of them under one label are that class, which is diffuse.
    """
    flagged, size = torch.bincount(y, weights=(probability >= 0.5).double()), torch.bincount(y)
    diffuse = (flagged >= MIN_DIFFUSE_SAMPLES) & (flagged >= MIN_DIFFUSE_SHARE * size)
    return probability.masked_fill(diffuse[y], 0)


def density_distances(p: Float[Tensor, "N K"], y: Int[Tensor, "N"], classes: int, seed: int) -> Float[Tensor, "N"]:
    """Return the squared distance of each sample to the nearest class, by densities fitted without the fold of the sample.

    Every fit but the first uses the samples that are typical of their label: the best class is the label, and the distance
    is not among the highest. Wrong labels and off-topic samples are thereby left out.
    """
    order = torch.randperm(len(p), generator=torch.Generator().manual_seed(seed)).to(p.device)
    typical = torch.ones_like(y, dtype=torch.bool)
    best, top = p.new_zeros(len(p)), torch.zeros_like(y)
    near, width = None, classes
    if classes > MAX_DENSE_CLASSES:
        whole = fit_predictive(p, y, typical, classes)
        near = nearest_centres((p - whole.origin) @ whole.map, whole.centre, NEAREST_CENTRES_COUNT, seed)
        width = p.shape[1] * (1 + near.shape[1])
    folds = order.tensor_split(min(FOLD_COUNT, len(p)))
    blocks = [(k, fold[some]) for k, fold in enumerate(folds) for some in row_blocks(len(fold), width, fold.device)]
    for _ in range(ROUND_COUNT):
        shared = {"p": p, "y": y, "typical": typical, "classes": classes}
        known = list(map_blocks(_fit_without, shared, folds))
        found = map_blocks(_distances_of_block, {"p": p, "y": y, "near": near, "known": known}, blocks)
        for (_, rows), (distance, nearest) in zip(blocks, found, strict=True):
            best[rows], top[rows] = distance, nearest
        typical = (top == y) & (best <= _quantile(best, 1 - TRIMMED_SHARE))
    return best


def _fit_without(shared: Mapping[str, Any], fold: Int[Tensor, "n"]) -> Predictive:
    """Return the densities that are fitted to the typical samples outside of a fold."""
    p, y, classes = shared["p"], shared["y"], shared["classes"]
    outside = torch.ones_like(shared["typical"])
    outside[fold] = False
    used = shared["typical"] & outside
    has_none = torch.bincount(y[used], minlength=classes)[y] == 0  # all samples of such a class are used
    return fit_predictive(p, y, used | (outside & has_none), classes)


def _distances_of_block(
    shared: Mapping[str, Any], block: tuple[int, Int[Tensor, "n"]]
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]:
    """Return `Predictive.distances` of some samples of one fold. `block`: number of the fold, rows."""
    (k, rows), near = block, shared["near"]
    return shared["known"][k].distances(shared["p"][rows], shared["y"][rows], None if near is None else near[rows])


def fit_predictive(p: Float[Tensor, "N K"], y: Int[Tensor, "N"], used: Bool[Tensor, "N"], classes: int) -> Predictive:
    """Fit the covariance within classes, shrunk, and the variances of class centres by moments, to the used samples.

    C centres in K dimensions have no variance in K - C + 1 of them, where a new class may well differ: the variances of
    centres are shrunk to their mean by K / (K + C).
    """
    p, y = p[used], y[used]
    n = torch.bincount(y, minlength=classes).to(p)
    origin = p.mean(0)
    mean = (class_sums(p, y, classes) / n.clamp_min(1)[:, None] - origin) * (n > 0)[:, None]
    rest = p - origin - mean[y]
    within = rest.T @ rest / (n - 1).clamp_min(0).sum().clamp_min(1)
    size = within.diagonal().mean().clamp_min(1e-12)
    eye = torch.eye(len(within), dtype=p.dtype, device=p.device)
    values, vectors = eigenvectors((1 - COVARIANCE_SHRINK_SHARE) * within + COVARIANCE_SHRINK_SHARE * size * eye)
    whiten = vectors / values.clamp_min(1e-12).sqrt()
    mean = mean @ whiten
    scatter, turn = eigenvectors((mean * n[:, None]).T @ mean)
    excess = (scatter - ((n > 0).sum() - 1)) / (n.sum() - n.square().sum() / n.sum()).clamp_min(1)
    between = excess.clamp_min(0)
    between = between.lerp(between.mean(), len(between) / (len(between) + int((n > 0).sum())))
    return Predictive(origin, whiten @ turn, n, mean @ turn, between)


def off_topic_probability(score: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return the posterior of the off-topic component of a mixture that is fitted to the scores above the median.

    Scores of samples of the classes follow a Weibull distribution above the median; its scale and shape agree with their 75 %
    and 90 % quantiles. Off-topic scores are normal. EM starts from several numbers of off-topic samples; the start
    with the highest likelihood is used, if it exceeds that without off-topic samples by `MIN_LIKELIHOOD_GAIN`.
    The posterior is made to rise with the score. It is 0 if the off-topic scores are only the tail of the others.
    """
    if score.device.type != "mps":  # MPS has no float64
        score = score.double()
    order = score.argsort()
    value = score[order]
    best, found = (
        _mixture_step(value, torch.zeros_like(value)).likelihood + MIN_LIKELIHOOD_GAIN,
        torch.zeros_like(value),
    )
    for share in FIRST_OFF_TOPIC_SHARES:
        posterior = (torch.arange(len(value), device=value.device) >= len(value) * (1 - share)).to(value)
        for _ in range(MIXTURE_STEPS):
            step = _mixture_step(value, posterior)
            posterior = step.posterior
        if bool(step.likelihood > best):
            best, found = step.likelihood, posterior
    middle, tail = value[len(value) // 2], value[int(0.9 * (len(value) - 1))]
    mean = (found * value).sum() / found.sum().clamp_min(1e-9)
    if not bool(mean - middle >= MIN_TAIL_RATIO * (tail - middle)):  # the tail of the classes themselves
        found = torch.zeros_like(found)
    return torch.zeros_like(score).scatter(0, order, found.cummax(0).values)


class MixtureStep(NamedTuple):
    """Posterior of the off-topic component after one EM step, and the log likelihood before it."""

    posterior: Float[Tensor, "N"]
    likelihood: Float[Tensor, ""]


def _mixture_step(value: Float[Tensor, "N"], posterior: Float[Tensor, "N"]) -> MixtureStep:
    """Fit both components to ascending scores, weighted by the posteriors, and return the new posteriors."""
    middle, upper, tail = _weighted_quantiles(value, 1 - posterior, (0.5, 0.75, 0.9))
    tiny = 1e-9 * (value[-1] - value[0]).clamp_min(1e-30)
    upper, tail = (upper - middle).clamp_min(tiny), (tail - middle).clamp_min(2 * tiny)
    shape = (math.log(math.log(5) / math.log(2)) / torch.log((tail / upper).clamp_min(1.01))).clamp(
        *WEIBULL_SHAPE_BOUNDS
    )
    scale = tail / math.log(5) ** (1 / shape)
    t = ((value - middle) / scale).clamp_min(1e-6)
    known = torch.log(shape / scale) + (shape - 1) * t.log() - t**shape
    total = posterior.sum()
    mean = (posterior * value).sum() / total.clamp_min(1e-9)
    spread = ((posterior * (value - mean).square()).sum() / total.clamp_min(1e-9)).sqrt().maximum(scale)
    off = -0.5 * ((value - mean) / spread).square() - torch.log(spread * math.sqrt(2 * math.pi))
    above = value > middle
    share = (total / above.sum().clamp_min(1)).clamp(0, 0.6)
    both = torch.stack([known + torch.log1p(-share), off + share.log()])
    every = both.logsumexp(0)
    return MixtureStep((both[1] - every).exp().where(above, 0), every.where(above, 0).sum())


def standardise(values: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return the values minus their median, divided by their interquartile range."""
    low, middle, high = (_quantile(values, q) for q in (0.25, 0.5, 0.75))
    return (values - middle) / (high - low).clamp_min(1e-12)


def _quantile(values: Float[Tensor, "N"], q: float) -> Float[Tensor, ""]:
    """Return a quantile; torch.quantile refuses more than 2^24 values."""
    return values.kthvalue(1 + round(q * (len(values) - 1))).values


def _weighted_quantiles(
    value: Float[Tensor, "N"], weight: Float[Tensor, "N"], levels: tuple[float, ...]
) -> Float[Tensor, "L"]:
    """Return the first of the ascending values at which the cumulative weight reaches each share of the total."""
    total = weight.cumsum(0)
    at = torch.searchsorted(total, total[-1] * torch.tensor(levels, dtype=total.dtype, device=total.device))
    return value[at.clamp_max(len(value) - 1)]
