"""Lambert's W, the inverse of w e^w, which turns losses into sample weights: batched, without branches, on any device."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.similarity import at_least_float32

INVERSE_E_PARTS = {
    torch.float32: (0.36787945032119751, -9.1497551881701012e-09),
    torch.float64: (1 / math.e, -1.2428753672788363e-17),
}
"""1/e as the nearest float and the remainder, so that x + 1/e keeps its digits when it is almost 0."""

SERIES_RADIUS = {torch.float32: 0.2, torch.float64: 0.01}
"""Where p is below this, the series has full precision for the dtype, and a Halley step would lose digits."""

SERIES_COEFFICIENTS = (-1.0, 1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280, -221 / 8505)
"""Coefficients of W in powers of p = sqrt(2 (1 + e x)), around its branch point."""


def lambert_w(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the principal branch for x >= -1/e; lower values count as -1/e, and infinity as the largest float.

    Two Halley steps, from a series near the branch point and from Iacono and Boyd's start elsewhere. The result has no
    gradient. The
    absolute error is 4e-7 in float32 and 1e-14 in float64; above 0 the relative error is as small.
    """
    x = at_least_float32(x.detach())
    x = x.clamp_max(torch.finfo(x.dtype).max)
    high, low = INVERSE_E_PARTS[x.dtype]
    p = (2 * math.e * ((x + high) + low)).clamp_min(0).sqrt()
    series = torch.full_like(p, SERIES_COEFFICIENTS[-1])
    for factor in SERIES_COEFFICIENTS[-2::-1]:
        series = series * p + factor
    # log1p of the largest numbers is infinite in some builds of torch; from 1e30 on log is the same to the last digit.
    z = torch.where(x < 1e30, x.clamp(-0.2, 1e30).log1p(), x.clamp_min(1e30).log())
    w = torch.where(x < -0.2, series, z * (1 - z.log1p() / (2 + z)))
    for _ in range(2):
        f, u = w - x * (-w).exp(), w + 1  # e^w is divided out, so that nothing overflows
        w = w - f / (u - (u + 1) * f / (2 * u))
    return torch.where(p < SERIES_RADIUS[x.dtype], series, w)


def exp_minus_w(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return e^-W(x): e at the branch point, exactly 1 at 0, falling to 0. The sample weight of ProcSim and SuperLoss."""
    x = at_least_float32(x.detach())
    w = lambert_w(x)
    return torch.where(x > 1, w / x.clamp_min(1), (-w).exp())  # equal formulas; each is precise on its side of 1
