"""Gaussian classes: the log density of a sample under every class, and under a class that no sample is known of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

MAX_CPU_MATRIX_ROWS = 512
"""Maximum number of rows of a matrix whose eigenvectors the CPU computes faster than a GPU."""

MIN_WITHIN_SHARE = 1e-4
"""Smallest variance within classes, as a share of the whole variance: below it is rounding of float32."""

MIN_BETWEEN_VARIANCE = 1e-6
"""Smallest variance of the class centres, in units of the variance within classes, of a direction that is kept."""


class ClassDensity(NamedTuple):
    """Density of samples under each of C Gaussian classes whose centres are Gaussian too (two-covariance model).

    All values are in the k directions in which class centres vary; the variance within a class is 1 there.
    """

    mean: Float[Tensor, "F"]
    projection: Float[Tensor, "F k"]
    centre: Float[Tensor, "C k"]  # posterior mean of the centre
    precision: Float[Tensor, "C k"]  # 1 / (1 + posterior variance of the centre)
    unseen_precision: Float[Tensor, "k"]  # the same for a class without samples

    def scores(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b C"]:
        """Return the log density of every sample under every class, up to a constant per sample."""
        z = (x - self.mean) @ self.projection
        weight = self.centre * self.precision
        offset = 0.5 * (self.precision.log() - self.centre * weight).sum(1)
        return torch.addmm(offset, z, weight.T).addmm_(z * z, self.precision.T, alpha=-0.5)

    def unseen_scores(self, x: Float[Tensor, "b F"]) -> Float[Tensor, "b"]:
        """Return the log density of every sample under a class without samples, with the constant of `scores`."""
        z = (x - self.mean) @ self.projection
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
    rounding = (
        8 * torch.finfo(square.dtype).eps * square.diagonal().sum() / n
    )  # of the differences above: W stays positive
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
    return ClassDensity(mean, projection, centre, precision, unseen)


def eigenvectors(matrix: Float[Tensor, "K K"]) -> tuple[Float[Tensor, "K"], Float[Tensor, "K K"]]:
    """Return eigenvalues, ascending, and eigenvectors of a symmetric matrix, computed in float64 where that is faster."""
    on_cpu = len(matrix) <= MAX_CPU_MATRIX_ROWS or matrix.device.type == "mps"  # MPS has no float64
    value, vector = torch.linalg.eigh(matrix.to("cpu" if on_cpu else matrix.device, torch.float64))
    return value.to(matrix), vector.to(matrix)
