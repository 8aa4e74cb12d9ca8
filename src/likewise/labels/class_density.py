"""Densities of features: of C exclusive classes, or of the samples with and without each of L independent labels.

`ClassDensity` has the log density of a sample under every class; `LinearOdds` the log odds of every label.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.given_sets import GivenSets, label_counts

MAX_CPU_MATRIX_ROWS = 512
"""Maximum number of rows of a matrix whose eigenvectors the CPU computes faster than a GPU."""

GATHERED_BLOCK_SIZE = 2**21
"""Maximum number of values of class centres that are gathered at a time."""

MIN_WITHIN_SHARE = 1e-4
"""Smallest variance within classes, as a share of the whole variance: below it is rounding of float32."""

MIN_BETWEEN_VARIANCE = 1e-6
"""Smallest variance of the class centres, in units of the variance within classes, of a direction that is kept."""

MIN_ALONG_SHARE = 1e-3
"""Smallest variance within the two classes of a label along their difference, as a share of the whole variance."""

MAX_RELATED_LABELS = 2048
"""Maximum number of labels whose dependence on each other is modelled; the matrix of more would not fit in memory."""

RELATED_SHRINK_SHARE = 0.5
"""Weight of the variances alone in the covariance of labels: one label that implies another is weak evidence, as it may be wrong.

Chosen with `MAX_RELATED_ODDS` on planted errors in CUB200 with its tree: at 0.1 without a limit, the features lost all weight,
and 17 % of the superfluous labels were found in place of 84 %."""

MAX_RELATED_ODDS = 2.0
"""Largest log odds by the other labels, in units of the logarithm of the number of samples: n samples do not make surer."""


class ClassDensity(NamedTuple):
    """Density of samples under each of C Gaussian classes whose centres are Gaussian too (two-covariance model).

    All values are in the k directions in which class centres vary; the variance within a class is 1 there.
    """

    mean: Float[Tensor, "F"]
    projection: Float[Tensor, "F k"]
    weight: Float[Tensor, "C k"]  # posterior mean of the centre times the precision
    precision: Float[Tensor, "C k"]  # 1 / (1 + posterior variance of the centre)
    offset: Float[Tensor, "C"]
    unseen_precision: Float[Tensor, "k"]  # the precision of a class without samples

    @property
    def classes(self) -> int:
        return len(self.weight)

    @property
    def centre(self) -> Float[Tensor, "C k"]:
        """Return the posterior mean of the centre of every class."""
        return self.weight / self.precision

    def project(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b k"]:
        """Return samples in the directions in which class centres vary, where the variance within a class is 1."""
        return (x - self.mean) @ self.projection

    def scores(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b C"]:
        """Return the log density of every sample under every class, up to a constant per sample."""
        z = self.project(x)
        return torch.addmm(self.offset, z, self.weight.T).addmm_(z * z, self.precision.T, alpha=-0.5)

    def scores_at(self, x: Float[Tensor, "b F"], label: Int[Tensor, "b W"]) -> Float[Tensor, "b W"]:
        """Return the log density of every sample under some classes, with the constant of `scores`."""
        z, found = self.project(x)[:, :, None], self.offset[label]
        rows = max(1, GATHERED_BLOCK_SIZE // (label.shape[1] * max(1, len(self.unseen_precision))))
        for some, own, part in zip(found.split(rows), label.split(rows), z.split(rows)):
            linear = F.embedding(own, self.weight) @ part
            some += linear.sub_(F.embedding(own, self.precision) @ (part * part), alpha=0.5)[:, :, 0]
        return found

    def unseen_scores(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b"]:
        """Return the log density of every sample under a class without samples, with the constant of `scores`."""
        z = self.project(x)
        return 0.5 * (self.unseen_precision.log().sum() - (z * z) @ self.unseen_precision)


def fit_class_density(
    count: Float[Tensor, "C"], total: Float[Tensor, "C F"], square: Float[Tensor, "F F"], shrink: float
) -> ClassDensity:
    """Return the class densities, from the number, the sum and the products of (softly) labelled samples.

    Formula: W = shrunk covariance within classes; b_j = variance of the true centres in direction j of W^-1/2, where W is 1:
        that of the sample means minus their sampling noise 1 / n_c. The centre of a class with n samples and mean m has the
        posterior mean n b m / (1 + n b) and variance b / (1 + n b): a class of few samples has a wide density near the mean.

    Args:
        shrink: weight of a multiple of the unit matrix in W, 0 to 1.
    """
    n = count.sum().clamp_min(1)
    mean = total.sum(0) / n
    raw = (total / count.clamp_min(1e-6)[:, None] - mean) * (count > 1e-3)[:, None]
    spread = square / n - torch.outer(mean, mean)
    freedom = (n - count.clamp_max(1).sum()).clamp_min(1)
    within = (spread - raw.T @ (raw * (count / n)[:, None])) * (n / freedom)
    least = MIN_WITHIN_SHARE * spread.diagonal().mean().clamp_min(1e-6)
    size = within.diagonal().mean().clamp_min(least)
    # of the differences above: W stays positive
    rounding = 8 * torch.finfo(square.dtype).eps * square.diagonal().sum() / n
    within = (1 - shrink) * within + (shrink * size + rounding) * torch.eye(len(within)).to(within)
    device = "cpu" if within.device.type == "mps" else within.device  # MPS has no float64
    within, raw64, count64 = (t.to(device, torch.float64) for t in (within, raw, count))
    root = torch.linalg.cholesky(within)
    white = torch.linalg.solve_triangular(root, raw64.T, upper=False)
    weight = count64 / (count64 + 1)
    whole = weight.sum().clamp_min(1e-300)  # 0 without samples: all of them belong together, and are left out together
    scaled = white * (weight / whole).sqrt()
    noise = (1 / (count64 + 1)).where(count64 > 1e-3, 0).sum() / whole
    if scaled.shape[1] < len(scaled):  # fewer classes than features
        value, side = eigenvectors(scaled.T @ scaled)
        basis = scaled @ side / value.clamp_min(1e-300).sqrt()
    else:
        value, basis = eigenvectors(scaled @ scaled.T)
    between = value - noise
    kept = between > MIN_BETWEEN_VARIANCE
    between, basis = between[kept], basis[:, kept]
    known = count64[:, None] * between
    centre = (white.T @ basis) * (known / (1 + known))
    precision = 1 / (1 + between / (1 + known))
    projection = torch.linalg.solve_triangular(root.T, basis, upper=True)
    projection, centre, precision, unseen = (t.to(total) for t in (projection, centre, precision, 1 / (1 + between)))
    weight = centre * precision
    offset = 0.5 * (precision.log() - centre * weight).sum(1)
    return ClassDensity(mean, projection, weight, precision, offset, unseen)


def eigenvectors(matrix: Float[Tensor, "K K"]) -> tuple[Float[Tensor, "K"], Float[Tensor, "K K"]]:
    """Return eigenvalues, ascending, and eigenvectors of a symmetric matrix, computed in float64 where that is faster."""
    on_cpu = len(matrix) <= MAX_CPU_MATRIX_ROWS or matrix.device.type == "mps"  # MPS has no float64
    value, vector = torch.linalg.eigh(matrix.to("cpu" if on_cpu else matrix.device, torch.float64))
    return value.to(matrix), vector.to(matrix)


class LinearOdds(NamedTuple):
    """Log odds of every label as a linear function: log p(v | has the label) - log p(v | has it not)."""

    weight: Float[Tensor, "F L"]
    offset: Float[Tensor, "L"]
    limit: float = math.inf  # largest absolute value

    @property
    def classes(self) -> int:
        return len(self.offset)

    def scores(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b L"]:
        return torch.addmm(self.offset, x, self.weight).clamp_(-self.limit, self.limit)


class LabelSums(NamedTuple):
    """Sums over some samples: their number, features, products of features, labels, and features by label."""

    n: Float[Tensor, ""]
    x: Float[Tensor, "F"]
    square: Float[Tensor, "F F"]
    count: Float[Tensor, "L"]
    total: Float[Tensor, "L F"]


def sums_of(x: Float[Tensor, "n F"], has: Float[Tensor, "n L"] | GivenSets) -> LabelSums:
    """Return the sums over these samples."""
    total = has.sums(x) if isinstance(has, GivenSets) else has.T @ x
    return LabelSums(x.new_tensor(float(len(x))), x.sum(0), x.T @ x, label_counts(has).to(x), total)


def density_odds(sums: LabelSums, shrink: float) -> LinearOdds:
    """Return the log odds of two Gaussians of equal covariance, with and without each label, for all labels at once.

    Formula: S = shrunk covariance of all samples, d = difference of the two means, p = share of samples with the label. The
        covariance within the two classes is S - p (1 - p) d d', so w = S^-1 d / (1 - p (1 - p) d' S^-1 d), by the formula of
        Sherman and Morrison, and the log odds are w (x - middle of the two means). One factorisation serves all labels.

    Args:
        shrink: weight of a multiple of the unit matrix in S, 0 to 1.
    """
    mean, without = sums.x / sums.n, sums.n - sums.count
    high, low = sums.total / sums.count.clamp_min(1)[:, None], (sums.x - sums.total) / without.clamp_min(1)[:, None]
    difference = (high - low) * ((sums.count > 0) & (without > 0))[:, None]
    spread = sums.square / sums.n - torch.outer(mean, mean)
    size = spread.diagonal().mean().clamp_min(1e-12)
    rounding = 8 * torch.finfo(spread.dtype).eps * sums.square.diagonal().sum() / sums.n
    spread = (1 - shrink) * spread + (shrink * size + rounding) * torch.eye(len(spread)).to(spread)
    device = "cpu" if spread.device.type == "mps" else spread.device  # MPS has no float64
    root = torch.linalg.cholesky(spread.to(device, torch.float64))
    solved = torch.cholesky_solve(difference.T.to(device, torch.float64), root).to(spread)
    share = sums.count / sums.n
    within = 1 - share * (1 - share) * (difference.T * solved).sum(0)
    weight = solved / within.clamp_min(MIN_ALONG_SHARE)
    return LinearOdds(weight, -0.5 * ((high + low).T * weight).sum(0))


def related_odds(
    n: float, count: Float[Tensor, "L"], both: Float[Tensor, "L L"], limit: float = math.inf
) -> LinearOdds:
    """Return the log odds of every label, given the other labels of the sample.

    Formula: P = inverse of the shrunk covariance of the labels; log odds = -sum over j != l of P_lj (t_j - share_j): the odds of
        two Gaussians of equal covariance for the vector of the other labels, up to a constant per label.

    Args:
        n, count, both: number of samples, and sums of their labels and of products of two labels.
        limit: largest absolute value of the log odds.
    """
    share = (count / n).double()
    covariance = both.double() / n - torch.outer(share, share)
    shrunk = (1 - RELATED_SHRINK_SHARE) * covariance
    shrunk.diagonal().copy_(covariance.diagonal().clamp_min(1 / n**2))
    weight = -torch.linalg.inv(shrunk).fill_diagonal_(0)
    return LinearOdds(weight.to(both), -(share @ weight).to(both), limit)
