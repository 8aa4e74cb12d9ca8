"""Metrics of how embeddings use their space: spectral decay, spectra per class, densities. One value (or curve) per set.

Names: `rho`, `rho@k`, `pi_intra`, `pi_inter` and `pi_ratio`. These metrics are descriptive: a higher value is not better.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.errors import LikewiseError

NAMES = {
    "rho": "spectral decay of all embeddings without the largest singular value, the same as rho@2; 0 = flat",
    "rho@k": "spectral decay without the k - 1 largest singular values; rho@1 uses all of them",
    "pi_intra": "mean cosine distance between two samples of a class",
    "pi_inter": "mean cosine distance between the centres of two classes",
    "pi_ratio": "density of the embedding space: pi_intra / pi_inter",
}

CHUNK_ROWS = 8192
"""Rows converted to float64 at a time, to bound the memory."""

MIN_SINGULAR_VALUE_SHARE = 1e-12
"""Lower bound of a normalised singular value: the decay would be infinite at 0."""


class Density(NamedTuple):
    """Mean cosine distances within and between classes, and their ratio."""

    pi_intra: float  # mean distance within a class
    pi_inter: float  # mean distance between the centres of classes
    pi_ratio: float


def knows(name: str) -> bool:
    """Return whether a name is a metric of this family."""
    return re.fullmatch(r"rho(@[1-9]\d*)?|pi_(intra|inter|ratio)", name) is not None


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """Return these metrics of embeddings, scaled to unit length."""
    names, unit = list(names), F.normalize(z, dim=1)
    value = density(z, y)._asdict() if any(name.startswith("pi") for name in names) else {}
    # rho@2 excludes one of the largest singular values, rho@1 none
    decays = [name for name in names if name.startswith("rho")]
    value |= {name: spectral_decay(unit, int(name.partition("@")[2] or 2) - 1) for name in decays}
    return {name: value[name] for name in names}


def spectrum(z: Float[Tensor, "N D"]) -> Float[Tensor, "S"]:
    """Return the min(N, D) singular values of the embeddings (not centred), largest first, scaled to sum 1; NaN if all are 0.

    Values below about 1e-7 of the largest are rounding errors of the embeddings, and are returned as 0.
    """
    check("spectrum", z)
    value = _singular_values(_gram(z))[: min(z.shape)]
    return value / value.sum()


def spectral_decay(z: Float[Tensor, "N D"], drop: int = 1, drop_last: int = 0) -> float:
    """Return rho, the decay of the singular values: 0 if all are equal, larger if the embeddings use fewer directions.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020.
    Formula: rho = KL(U || p) = 1/m sum_i log( (1/m) / p_i ), p = the m singular values kept, scaled to sum 1
    Differs: p_i is at least 1e-12. NaN if all kept values are 0. The study measures it on the training split, in evaluation mode;
        here the caller chooses the embeddings.

    Args:
        drop: number of largest values to exclude. The study's figures: 1 (its `rho_spectrum@2`; the largest value mostly reflects
            the mean embedding). 0 is its `rho_spectrum@1`.
        drop_last: number of smallest values to exclude. The study's code excludes one on a CPU and none on a GPU; with its
            published commands, the printed values most likely have `drop_last=1`.
    """
    p = spectrum(z)
    if drop < 0 or drop_last < 0 or len(p) - drop - drop_last < 2:
        raise LikewiseError(
            f"spectral_decay: at least two singular values must remain, but {tuple(z.shape)} embeddings have "
            f"{len(p)} and drop={drop}, drop_last={drop_last}; drop fewer"
        )
    p = p[drop : len(p) - drop_last]
    return float((1 / len(p) / (p / p.sum()).clamp_min(MIN_SINGULAR_VALUE_SHARE)).log().mean())


def class_spectrum(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], ranks: int = 35) -> Float[Tensor, "{ranks}"]:
    """Return the mean spectrum of the classes: singular values of each class, largest first, scaled to sum 1, averaged by rank.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020,
        whose figure shows 35 ranks; the paper does not define the scaling.
    Differs: a class with fewer values counts as 0 in the remaining ranks. Classes of one sample (or of zero vectors only) are
        ignored; NaN if no class remains.
    """
    check("class_spectrum", z, y)
    total, classes = torch.zeros(ranks, dtype=torch.float64, device=z.device), 0
    for gram in _class_grams(z, y):
        value = _singular_values(gram)
        value = value[value.sum(1) > 0]
        classes += len(value)
        sums = (value / value.sum(1, keepdim=True)).sum(0)[:ranks]
        total[: len(sums)] += sums
    return total / (classes or math.nan)


def density(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Density:
    """Return the mean distance within classes, the mean distance between class centres, and their ratio. Distance = 1 - cosine.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020.
    Formula: pi_intra = mean_c mean_{i != j in c} d(z_i, z_j); pi_inter = mean_{c != d} d(mu_c, mu_d), mu_c = the class mean
        scaled to unit length; pi_ratio = pi_intra / max(pi_inter, 1e-8). Computed from sums, without pairs: for unit vectors,
        mean_{i != j} cos_ij = ( |sum_i z_i|^2 - n ) / ( n (n - 1) )
    Differs: a class of one sample has no pair and is not in pi_intra; its centre is in pi_inter. NaN if no class has a pair, or
        there is only one class.
    """
    check("density", z, y)
    _, number, count = y.unique(return_inverse=True, return_counts=True)
    total = torch.zeros(len(count), z.shape[1], dtype=torch.float64, device=z.device)
    own = torch.zeros(len(count), dtype=torch.float64, device=z.device)  # class size, without zero vectors
    for rows in torch.arange(len(z), device=z.device).split(CHUNK_ROWS):
        unit = F.normalize(z[rows].double(), dim=1)
        total.index_add_(0, number[rows], unit)
        own.index_add_(0, number[rows], unit.square().sum(1))
    some = count > 1
    pairs = (count * (count - 1))[some]
    intra = float((1 - (total.square().sum(1) - own)[some] / pairs).clamp_min(0).mean())  # NaN without pairs
    centre = F.normalize(total, dim=1)
    ordered = len(centre) * (len(centre) - 1) or math.nan
    inter = 1 - float(centre.sum(0).square().sum() - centre.square().sum()) / ordered
    return Density(intra, inter, intra / max(inter, 1e-8) if inter == inter else math.nan)


def check(owner: str, z: Tensor, y: Tensor | None = None) -> None:
    """Raise unless z has at least two finite rows, and y one integer per row."""
    if not isinstance(z, Tensor) or z.ndim != 2 or not z.is_floating_point() or len(z) < 2 or not z.shape[1]:
        got = f"{z.dtype} of shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
        raise LikewiseError(f"{owner}: z must be a float tensor (N, D) of two rows or more, got {got}")
    bad = (~z.isfinite()).any(1).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"{owner}: embeddings must be finite, but {len(bad)} of {len(z)} rows are not (first: row {int(bad[0])}); "
            "remove these rows, or check the network"
        )
    if y is None:
        return
    is_integer = isinstance(y, Tensor) and not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    if not is_integer or y.shape != z.shape[:1]:
        got = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise LikewiseError(f"{owner}: y must have one integer for each of the {len(z)} rows, got {got}")


def _gram(z: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """Return Z^T Z in float64, computed in chunks of rows."""
    total = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
    for rows in z.split(CHUNK_ROWS):
        rows = rows.double()
        total.addmm_(rows.T, rows)
    return total


def _class_grams(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Iterator[Float[Tensor, "c s s"]]:
    """Yield the Gram matrices of classes with at least two samples; classes of equal size in one batch."""
    _, number, count = y.unique(return_inverse=True, return_counts=True)
    order, start = number.argsort(stable=True), count.cumsum(0) - count
    dim = z.shape[1]
    for n in count[count > 1].unique().tolist():
        for first in start[count == n].split(max(1, CHUNK_ROWS * 64 // (n * dim)) if n <= dim else 1):
            rows = order[first[:, None] + torch.arange(n, device=z.device)]
            if n > dim:  # a large class alone, as a D x D matrix
                yield _gram(z[rows[0]])[None]
            else:
                own = z[rows].double()
                yield own @ own.mT


def _singular_values(gram: Float[Tensor, "*c s s"]) -> Float[Tensor, "*c s"]:
    """Return the square roots of the eigenvalues, largest first; values within the rounding error of float64 are 0."""
    value = torch.linalg.eigvalsh(gram).flip(-1)
    least = value[..., :1] * gram.shape[-1] * torch.finfo(value.dtype).eps
    return value.where(value > least, 0.0).sqrt()
