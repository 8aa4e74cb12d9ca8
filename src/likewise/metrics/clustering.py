"""Whether k-means finds the classes: mutual information and pair F1 of two ways to group the same samples.

Names: `NMI`, `NMI_geometric`, `AMI` and `F1`, each between the classes and as many k-means clusters of the unit embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.metrics.spectrum import check
from likewise.numerics.kmeans import kmeans
from likewise.retrieval.integer_scores import unit_rows

NAMES = {
    "NMI": "mutual information of classes and k-means clusters, divided by the mean of their entropies",
    "NMI_geometric": "the same divided by the geometric mean of the entropies (scikit-learn before 0.22)",
    "AMI": "the same as NMI, adjusted for chance: 0 for random clusters of these sizes",
    "F1": "F1 of the pairs of samples that k-means puts together, against those of one class",
}

ITERATIONS = 20


class Counts(NamedTuple):
    """How many samples each group of a, each group of b, and each overlap of two that is not empty holds."""

    a: Int[Tensor, "A"]
    b: Int[Tensor, "B"]
    both: Int[Tensor, "P"]
    product: Int[Tensor, "P"]  # size of the group of a times size of the group of b


def knows(name: str) -> bool:
    """Whether this names a metric of clusters."""
    return name in NAMES


def measure(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """These metrics of a set of embeddings, scaled to unit length, from one run of k-means.

    Paper: Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric Learning, ICML 2020:
        one start, 20 iterations.
    Differs: as many clusters as there are classes in this set; the study's code takes the number of training classes, which is
        another number for SOP and wherever validation classes are held out. Starts are chosen by greedy k-means++, not drawn
        evenly, so numbers are higher: by 0.02 of NMI for classes of 59, by 0.04 to 0.06 for classes of 5. Always by unit
        embeddings.
    """
    check("clustering", z, y)
    label = kmeans(unit_rows(z), len(y.unique()), iterations=ITERATIONS).label
    by_name = {"NMI": nmi, "NMI_geometric": nmi_geometric, "AMI": ami, "F1": pair_f1}
    return {name: by_name[name](y, label) for name in names}


def nmi(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Normalised mutual information of two groupings, by the arithmetic mean of their entropies; symmetric.

    Formula: 2 I(a, b) / (H(a) + H(b))
    Differs: NaN where both put all samples into one group; scikit-learn says 1.
    """
    counts = _count("nmi", a, b)
    return _ratio(2 * _information(counts), _entropy(counts.a) + _entropy(counts.b))


def nmi_geometric(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """The same by the geometric mean, never lower.

    Formula: I(a, b) / sqrt( H(a) H(b) )
    Differs: NaN where one of them puts all samples into one group; scikit-learn says 0 or 1.
    """
    counts = _count("nmi_geometric", a, b)
    return _ratio(_information(counts), math.sqrt(_entropy(counts.a) * _entropy(counts.b)))


def ami(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """Mutual information adjusted for chance: 1 for equal groupings, 0 on average for random ones of these sizes; symmetric.

    Paper: Vinh et al., Information Theoretic Measures for Clusterings Comparison, JMLR 2010.
    Formula: (I - E[I]) / ( (H(a) + H(b)) / 2 - E[I] ), E over all groupings with groups of these sizes
    Differs: NaN where both put all samples into one group, or each into its own; scikit-learn says 1.
    """
    counts = _count("ami", a, b)
    if len(counts.a) == len(counts.b) and len(counts.a) in (1, len(a)):
        return math.nan
    chance = _expected_information(counts)
    return _ratio(_information(counts) - chance, (_entropy(counts.a) + _entropy(counts.b)) / 2 - chance)


def pair_f1(a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> float:
    """F1 over pairs of samples: those together in b against those together in a; symmetric.

    Formula: 2 TP / (2 TP + FP + FN), TP = pairs together in both, FP = in b only, FN = in a only
    Differs: NaN where neither puts any two samples together.
    """
    counts = _count("pair_f1", a, b)
    together, in_a, in_b = (int((n * (n - 1)).sum()) for n in (counts.both, counts.a, counts.b))
    return _ratio(2 * together, in_a + in_b)


def _count(owner: str, a: Int[Tensor, "N"], b: Int[Tensor, "N"]) -> Counts:
    for label in (a, b):
        if label.ndim != 1 or label.is_floating_point() or label.shape != a.shape or not len(label):
            raise LikewiseError(
                f"{owner}: two whole numbers for each sample are wanted, got a {a.dtype} {tuple(a.shape)} and "
                f"b {b.dtype} {tuple(b.shape)}"
            )
    (_, of_a, size_a), (_, of_b, size_b) = (label.unique(return_inverse=True, return_counts=True) for label in (a, b))
    pair, both = (of_a * len(size_b) + of_b).unique(return_counts=True)
    return Counts(size_a, size_b, both, size_a[pair // len(size_b)] * size_b[pair % len(size_b)])


def _entropy(size: Int[Tensor, "A"]) -> float:
    share = size.double() / size.sum()
    return float(-(share * share.log()).sum()) + 0.0  # no -0


def _information(counts: Counts) -> float:
    """Formula: sum_ab n_ab / N log( N n_ab / (n_a n_b) )"""
    total = int(counts.a.sum())
    both = counts.both.double()
    return max(0.0, float((both / total * (total * both / counts.product).log()).sum()))


def _expected_information(counts: Counts) -> float:
    """The mean of `_information` over all groupings with groups of these sizes. Groups of equal sizes count together: 60,000
    samples have a few dozen different sizes, not ten thousand.

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
        p = (
            (chosen - log_ways[total] + log_ways[b] + log_ways[total - b]).clamp_min(-700).exp()
        )  # e^-746 underflows: slow
        result += float((weight * p * (n.double() / total) * (total * n.double() / (a * b)).log()).sum())
    return result


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
