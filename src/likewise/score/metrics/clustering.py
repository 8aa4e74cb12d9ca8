"""Clustering metrics: mutual information and pair F1 of two groupings of the same samples.

Names: `NMI`, `NMI_geometric`, `AMI` and `F1`, each between the classes and as many k-means clusters of the unit embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.kmeans import kmeans
from likewise.core.retrieval.integer_scores import unit_rows
from likewise.score.metrics.spectrum import check

NAMES = {
    "NMI": "mutual information of classes and k-means clusters, divided by the mean of their entropies",
    "NMI_geometric": "the same divided by the geometric mean of the entropies (scikit-learn before 0.22)",
    "AMI": "NMI adjusted for chance: 0 for random clusters of these sizes",
    "F1": "F1 over pairs of samples: same k-means cluster against same class",
}

KMEANS_ITERATIONS = 20
"""Iterations of k-means, as in Roth et al. 2020."""


MAX_CPU_PRODUCTS = 5e13
"""Most multiplications of k-means on a CPU, some three hours of one core: rows x clusters x dimensions x iterations."""


class Counts(NamedTuple):
    """Number of samples in each group of a, in each group of b, and in each non-empty intersection of two groups."""

    a: Int[Tensor, "A"]
    b: Int[Tensor, "B"]
    both: Int[Tensor, "P"]
    product: Int[Tensor, "P"]  # size of the group of a times size of the group of b


def knows(name: str) -> bool:
    """Return whether a name is a clustering metric."""
    return name in NAMES


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """Return these metrics of embeddings, scaled to unit length, from one run of k-means.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020:
        one start, 20 iterations.
    Differs: the number of clusters is the number of classes in this set; the study's code uses the number of training classes,
        which differs for SOP and with held-out validation classes. Greedy k-means++ initialisation, not uniform, gives higher
        values: NMI by 0.02 for classes of 59 samples, by 0.04 to 0.06 for classes of 5. Always on unit embeddings.
    """
    check("clustering", z, y)
    check_cost(z, y)
    label = kmeans(unit_rows(z), len(y.unique()), iterations=KMEANS_ITERATIONS).label
    by_name = {"NMI": nmi, "NMI_geometric": nmi_geometric, "AMI": ami, "F1": pair_f1}
    return {name: by_name[name](y, label) for name in names}


def check_cost(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> None:
    """Raise if k-means of these embeddings takes hours on a CPU: its time grows with rows times classes times dimensions.

    Fewer rows or clusters give other, mostly higher values, with an error that has no bound, so that no sample is taken here.
    """
    classes = len(y.unique())
    products = float(len(z)) * classes * z.shape[1] * (KMEANS_ITERATIONS + 2)  # the start costs about two iterations
    if z.device.type == "cpu" and products > MAX_CPU_PRODUCTS:
        raise LikewiseError(
            f"metrics: {', '.join(NAMES)} need k-means of {len(z):,} rows into {classes:,} clusters, which is limited to "
            f"{MAX_CPU_PRODUCTS:.0e} multiplications on a CPU, got {products:.0e}; leave them out (R@k, RP and MAP@R measure the "
            "same and take --queries), use a GPU (--device cuda), or score the rows of some random classes in a file of their "
            "own: the values are then those of that smaller set"
        )


def nmi(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Return the mutual information of two groupings, normalised by the arithmetic mean of their entropies; symmetric.

    Formula: 2 I(a, b) / (H(a) + H(b))
    Differs: NaN if both groupings have one group; scikit-learn returns 1. Roth et al. 2020 print 1/4 of it (eq. 27).
    """
    counts = _count(a, b)
    return _ratio(2 * _information(counts), _entropy(counts.a) + _entropy(counts.b))


def nmi_geometric(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Return the mutual information of two groupings, normalised by the geometric mean of their entropies; at least `nmi`.

    Formula: I(a, b) / sqrt( H(a) H(b) )
    Differs: NaN if one grouping has one group; scikit-learn returns 0 or 1.
    """
    counts = _count(a, b)
    return _ratio(_information(counts), math.sqrt(_entropy(counts.a) * _entropy(counts.b)))


def ami(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Return the mutual information adjusted for chance: 1 for equal groupings, on average 0 for random ones; symmetric.

    Paper: Vinh et al., Information Theoretic Measures for Clusterings Comparison, JMLR 2010.
    Formula: (I - E[I]) / ( (H(a) + H(b)) / 2 - E[I] ), E over all groupings with groups of these sizes
    Differs: NaN if both groupings have one group, or one group per sample; scikit-learn returns 1.
    """
    counts = _count(a, b)
    if len(counts.a) == len(counts.b) and len(counts.a) in (1, len(a)):
        return math.nan
    chance = _expected_information(counts)
    return _ratio(_information(counts) - chance, (_entropy(counts.a) + _entropy(counts.b)) / 2 - chance)


def pair_f1(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Return F1 over pairs of samples: same group in b against same group in a; symmetric.

    Formula: 2 TP / (2 TP + FP + FN), TP = pairs in one group of both, FP = of b only, FN = of a only
    Differs: NaN if no two samples share a group in either grouping.
    """
    counts = _count(a, b)
    together, in_a, in_b = (int((n * (n - 1)).sum()) for n in (counts.both, counts.a, counts.b))
    return _ratio(2 * together, in_a + in_b)


def _count(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> Counts:
    (_, of_a, size_a), (_, of_b, size_b) = (label.unique(return_inverse=True, return_counts=True) for label in (a, b))
    pair, both = (of_a * len(size_b) + of_b).unique(return_counts=True)
    return Counts(size_a, size_b, both, size_a[pair // len(size_b)] * size_b[pair % len(size_b)])


def _entropy(size: Int[Tensor, "A"]) -> float:
    share = size.double() / size.sum()
    return float(-(share * share.log()).sum()) + 0.0  # avoids -0.0


def _information(counts: Counts) -> float:
    """Return the mutual information: sum_ab n_ab / N log( N n_ab / (n_a n_b) )."""
    total = int(counts.a.sum())
    both = counts.both.double()
    return max(0.0, float((both / total * (total * both / counts.product).log()).sum()))


def _expected_information(counts: Counts) -> float:
    """Return the mean of `_information` over all groupings with groups of these sizes.

    Groups of equal size are computed once: 60,000 samples have a few dozen distinct group sizes, but ten thousand groups.

    Formula: sum_ab sum_n n / N log( N n / (n_a n_b) ) P(n), P hypergeometric: n of the n_a fall among the n_b of N
    """
    total = int(counts.a.sum())
    log_ways = torch.lgamma(torch.arange(total + 1, dtype=torch.float64) + 1)  # log n!
    (size_a, times_a), (size_b, times_b) = (size.cpu().unique(return_counts=True) for size in (counts.a, counts.b))
    result = 0.0
    for a, times in zip(size_a.tolist(), times_a.tolist(), strict=True):
        most = size_b.clamp_max(a)
        b, weight = size_b.repeat_interleave(most), times * times_b.repeat_interleave(most)
        n = torch.arange(1, len(b) + 1) - (most.cumsum(0) - most).repeat_interleave(most)  # 1, 2, ... min(a, b)
        neither = total - a - b + n
        n, b, weight, neither = (value[neither >= 0] for value in (n, b, weight, neither))
        chosen = log_ways[a] - log_ways[n] - log_ways[a - n] + log_ways[total - a] - log_ways[b - n] - log_ways[neither]
        # exp below -746 underflows to denormals, which are slow
        p = (chosen - log_ways[total] + log_ways[b] + log_ways[total - b]).clamp_min(-700).exp()
        result += float((weight * p * (n.double() / total) * (total * n.double() / (a * b)).log()).sum())
    return result


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
