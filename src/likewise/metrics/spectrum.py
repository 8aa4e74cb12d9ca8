"""How embeddings fill their space: spectral decay, spectra per class, and densities. One number (or curve) for a whole set.

Names: `rho`, `rho@k`, `pi_intra`, `pi_inter` and `pi_ratio`. Unlike the metrics per query they describe; high is not better.
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

from likewise.errors import LikewiseError

NAMES = {
    "rho": "spectral decay of all embeddings without the largest singular value, the same as rho@2; 0 = flat",
    "rho@k": "spectral decay without the k - 1 largest singular values; rho@1 takes all of them",
    "pi_intra": "mean cosine distance between two samples of a class",
    "pi_inter": "mean cosine distance between the centres of two classes",
    "pi_ratio": "density of the embedding space: pi_intra / pi_inter",
}

CHUNK = 8192
"""Rows taken at a time, so that float64 copies stay small."""

FLOOR = 1e-12
"""Normalised singular values below this count as this: decay would be infinite at 0."""


class Density(NamedTuple):
    pi_intra: float  # mean distance within a class
    pi_inter: float  # mean distance between the centres of classes
    pi_ratio: float


def knows(name: str) -> bool:
    """Whether this names a metric of this family."""
    return re.fullmatch(r"rho(@[1-9]\d*)?|pi_(intra|inter|ratio)", name) is not None


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """These metrics of a set of embeddings, scaled to unit length."""
    names, unit = list(names), F.normalize(z, dim=1)
    value = density(z, y)._asdict() if any(name.startswith("pi") for name in names) else {}
    value |= {name: spectral_decay(unit, _drop(name)) for name in names if name.startswith("rho")}
    return {name: value[name] for name in names}


def _drop(name: str) -> int:
    """How many of the largest values a name leaves out."""
    return int(name.partition("@")[2] or 2) - 1


def spectrum(z: Float[Tensor, "N D"]) -> Float[Tensor, "S"]:
    """Singular values of the embeddings as they are (not centred), largest first, scaled to sum 1; NaN if all are zeros.

    There are min(N, D). Values below about 1e-7 of the largest are rounding errors of the embeddings, and are given as 0.
    """
    check("spectrum", z)
    value = _singular_values(_gram(z))[: min(z.shape)]
    return value / value.sum()


def spectral_decay(z: Float[Tensor, "N D"], drop: int = 1, drop_last: int = 0) -> float:
    """rho, how fast the singular values fall: 0 when all are equal, the larger the fewer directions are used.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020.
    Formula: rho = KL(U || p) = 1/m sum_i log( (1/m) / p_i ), p = the m singular values kept, scaled to sum 1
    Differs: p_i is at least 1e-12. NaN when nothing but zeros is kept. The study measures it on the training split, in
        evaluation mode; which embeddings you hand over is yours to choose and to say.

    Args:
        drop: how many of the largest values to leave out. The study's figures: 1 (its `rho_spectrum@2`; the largest is
            little more than the mean embedding). 0 is its `rho_spectrum@1`.
        drop_last: how many of the smallest to leave out. The study's code leaves out one on a CPU and none on a GPU; with
            its published commands, `drop_last=1` is most likely what was printed.
    """
    p = spectrum(z)
    if drop < 0 or drop_last < 0 or len(p) - drop - drop_last < 2:
        raise LikewiseError(
            f"spectral_decay: two singular values or more must be left to compare, but {tuple(z.shape)} embeddings have "
            f"{len(p)} and drop={drop}, drop_last={drop_last}; drop fewer"
        )
    p = p[drop : len(p) - drop_last]
    return float((1 / len(p) / (p / p.sum()).clamp_min(FLOOR)).log().mean())


def class_spectrum(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], ranks: int = 35) -> Float[Tensor, "{ranks}"]:
    """Mean spectrum of the classes: each class's singular values, largest first, scaled to sum 1, averaged rank by rank.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020,
        whose figure shows 35 ranks and leaves the scaling open.
    Differs: a class with fewer values counts as 0 in the ranks beyond them. Classes of one sample (or of zeros only) are
        left out; NaN where no class is left.
    """
    check("class_spectrum", z, y)
    if ranks < 1:
        raise LikewiseError(f"class_spectrum: ranks must be 1 or more, got {ranks}")
    total, classes = torch.zeros(ranks, dtype=torch.float64, device=z.device), 0
    for gram in _class_grams(z, y):
        value = _singular_values(gram)
        value = value[value.sum(1) > 0]
        classes += len(value)
        found = (value / value.sum(1, keepdim=True)).sum(0)[:ranks]
        total[: len(found)] += found
    return total / (classes or math.nan)


def density(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Density:
    """How widely classes spread, how far apart they stand, and the ratio of the two. Distances are 1 - cosine.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020.
    Formula: pi_intra = mean_c mean_{i != j in c} d(z_i, z_j); pi_inter = mean_{c != d} d(mu_c, mu_d), mu_c = the class mean
        scaled to unit length; pi_ratio = pi_intra / max(pi_inter, 1e-8). In sums, not pairs: for unit vectors,
        mean_{i != j} cos_ij = ( |sum_i z_i|^2 - n ) / ( n (n - 1) )
    Differs: a class of one sample has no pair and is left out of pi_intra; its centre counts in pi_inter. NaN where no
        class has a pair, or there is one class only.
    """
    check("density", z, y)
    _, number, count = y.unique(return_inverse=True, return_counts=True)
    total = torch.zeros(len(count), z.shape[1], dtype=torch.float64, device=z.device)
    own = torch.zeros(len(count), dtype=torch.float64, device=z.device)  # n, but for vectors that are zero
    for rows in torch.arange(len(z), device=z.device).split(CHUNK):
        unit = F.normalize(z[rows].double(), dim=1)
        total.index_add_(0, number[rows], unit)
        own.index_add_(0, number[rows], unit.square().sum(1))
    some = count > 1
    pairs = (count * (count - 1))[some]
    intra = float((1 - (total.square().sum(1) - own)[some] / pairs).clamp_min(0).mean())  # NaN for none
    centre = F.normalize(total, dim=1)
    ordered = len(centre) * (len(centre) - 1) or math.nan
    inter = 1 - float(centre.sum(0).square().sum() - centre.square().sum()) / ordered
    return Density(intra, inter, intra / max(inter, 1e-8) if inter == inter else math.nan)


def check(owner: str, z: Tensor, y: Tensor | None = None) -> None:
    """Two finite rows or more, and a whole number for each."""
    if not isinstance(z, Tensor) or z.ndim != 2 or not z.is_floating_point() or len(z) < 2 or not z.shape[1]:
        got = f"{z.dtype} of shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
        raise LikewiseError(f"{owner}: z must be a float tensor (N, D) of two rows or more, got {got}")
    bad = (~z.isfinite()).any(1).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"{owner}: embeddings must be finite, but {len(bad)} of {len(z)} rows are not (first: row {int(bad[0])}); "
            "leave them out, or see why the network gives them"
        )
    if y is None:
        return
    whole = isinstance(y, Tensor) and not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    if not whole or y.shape != z.shape[:1]:
        got = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise LikewiseError(f"{owner}: y must hold a whole number for each of the {len(z)} rows, got {got}")


def _gram(z: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """Z^T Z in float64, some rows at a time."""
    total = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
    for rows in z.split(CHUNK):
        rows = rows.double()
        total.addmm_(rows.T, rows)
    return total


def _class_grams(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> Iterator[Float[Tensor, "c s s"]]:
    """The inner products of each class of two samples or more, classes of one size together."""
    _, number, count = y.unique(return_inverse=True, return_counts=True)
    order, start = number.argsort(stable=True), count.cumsum(0) - count
    dim = z.shape[1]
    for n in count[count > 1].unique().tolist():
        for first in start[count == n].split(max(1, CHUNK * 64 // (n * dim)) if n <= dim else 1):
            rows = order[first[:, None] + torch.arange(n, device=z.device)]
            if n > dim:  # a large class, on its own: D x D, some rows at a time
                yield _gram(z[rows[0]])[None]
            else:
                own = z[rows].double()
                yield own @ own.mT


def _singular_values(gram: Float[Tensor, "*c s s"]) -> Float[Tensor, "*c s"]:
    """Roots of the eigenvalues, largest first; what float64 cannot tell from 0 is 0."""
    value = torch.linalg.eigvalsh(gram).flip(-1)
    least = value[..., :1] * gram.shape[-1] * torch.finfo(value.dtype).eps
    return value.where(value > least, 0.0).sqrt()
