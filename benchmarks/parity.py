"""Evaluation side by side with pytorch-metric-learning, scikit-learn and loops in plain Python: the same numbers, or why not.

    python benchmarks/parity.py [--out docs/parity.md]

Five small random data sets, all metrics. Every number that differs from the loops by more than `CLOSE` is bold and has a note,
and a note stands only where its reason is checked by numbers: a difference without a known reason is an error.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate, combinations
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn import metrics as peer
from torch import Tensor
from torch.nn import functional as F

from likewise.cluster import kmeans
from likewise.errors import LikewiseError
from likewise.metrics import measure_set, metric
from likewise.metrics.clustering import ITERATIONS
from likewise.search import rank

RANKED = ("R@1", "R@10", "P@1", "RP", "MAP@R", "mAP", "mAP@10/R", "MRR", "NDCG@10")
OF_THE_SET = ("NMI", "NMI_geometric", "AMI", "F1", "AUROC", "TAR@FAR=0.01")
WHO = ("likewise", "brute force", "pytorch-metric-learning", "scikit-learn")
CLOSE = 1e-6

Scores = dict[str, float]
"""Metric by name; one that somebody does not have is missing."""


@dataclass(frozen=True, eq=False)
class Data:
    """Embeddings to score. Without a gallery every row asks all others; with one, the rows outside ask those inside."""

    title: str
    says: str
    z: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    gallery: Bool[Tensor, "N"] | None = None

    @property
    def asks(self) -> list[int]:
        return list(range(len(self.y))) if self.gallery is None else (~self.gallery).nonzero()[:, 0].tolist()

    def answers(self, query: int) -> list[int]:
        rows = range(len(self.y)) if self.gallery is None else self.gallery.nonzero()[:, 0].tolist()
        return [j for j in rows if j != query]

    @cached_property
    def cluster(self) -> Int[Tensor, "N"]:
        """The one k-means that everybody's NMI, AMI and F1 are about."""
        return kmeans(F.normalize(self.z, dim=1), len(self.y.unique()), iterations=ITERATIONS).label


def scatter(y: Int[Tensor, "N"], spread: float = 1.2) -> Float[Tensor, "N D"]:
    """Unit vectors around a random centre for each class."""
    g = torch.Generator().manual_seed(0)
    centre = torch.randn(int(y.max()) + 1, 16, generator=g)
    return F.normalize(centre[y] + spread * torch.randn(len(y), 16, generator=g), dim=1)


def data_sets() -> list[Data]:
    even = torch.arange(240) % 12
    twins = scatter(even)
    twins[1:15] = twins[0]
    twins[100:115], twins[131:146] = twins[40:55], twins[60:75]
    alone = even.where(torch.arange(240) >= 24, torch.arange(240) + 12)
    sizes = torch.tensor([2, 3, 5, 8, 13, 21, 34, 55, 89])
    uneven = torch.arange(len(sizes)).repeat_interleave(sizes)
    partly = even.where(torch.arange(240) >= 6, torch.arange(240) + 12)
    return [
        Data("Plain", "12 classes of 20.", scatter(even), even),
        Data(
            "Ties",
            "The same, but 15 rows of all classes are one picture, 15 have a twin in their class, 15 in another class.",
            twins,
            even,
        ),
        Data("Classes of one image", "The same, but 24 rows are alone in their class.", scatter(alone), alone),
        Data("Unbalanced classes", f"Classes of {', '.join(map(str, sizes.tolist()))}.", scatter(uneven), uneven),
        Data(
            "Query and gallery",
            "60 queries, a gallery of 180. The classes of 6 queries are not in the gallery. Numbers of the whole set are of all 240.",
            scatter(partly),
            partly,
            torch.arange(240) >= 60,
        ),
    ]


def likewise(data: Data) -> Scores:
    if data.gallery is None:
        found = rank(data.z, data.y, all_hits=True)
    else:
        asks, answers = ~data.gallery, data.gallery
        found = rank(data.z[asks], data.y[asks], data.z[answers], data.y[answers], all_hits=True)
    return {name: metric(name)(found).nanmean().item() for name in RANKED} | measure_set(OF_THE_SET, data.z, data.y)


Tie = Callable[[int, bool], float]
"""Of answers that are equally near, the one with the lowest number comes first; from its row, and whether it is right."""


def by_row(row: int, right: bool) -> float:
    return row


def kind(row: int, right: bool) -> float:
    return -right


def unkind(row: int, right: bool) -> float:
    return right


def cosines(z: Float[Tensor, "N D"]) -> list[list[float]]:
    """Number by number in one order, so that equal vectors have equal cosines, to the last bit."""
    unit = [[v / math.sqrt(sum(v * v for v in row)) for v in row] for row in z.double().tolist()]
    return [[sum(p * q for p, q in zip(a, b)) for b in unit] for a in unit]


def by_loops(data: Data, sim: list[list[float]]) -> Scores:
    y, group = data.y.tolist(), data.cluster.tolist()
    return loop_ranking(data, sim, by_row) | loop_groups(y, group) | loop_pairs(y, sim)


def loop_ranking(data: Data, sim: list[list[float]], tie: Tie) -> Scores:
    """Means over the queries that have something to find."""
    y, each = data.y.tolist(), []
    for q in data.asks:
        order = sorted(data.answers(q), key=lambda j: (-sim[q][j], tie(j, y[j] == y[q])))  # noqa: B023
        if any(y[j] == y[q] for j in order):
            each.append(loop_query([y[j] == y[q] for j in order]))
    return {name: sum(scores[name] for scores in each) / len(each) for name in RANKED}


def loop_query(hits: list[bool]) -> Scores:
    """From whether each answer is right, nearest first."""
    relevant = sum(hits)
    precision = [found / r if hit else 0.0 for r, (hit, found) in enumerate(zip(hits, accumulate(hits)), 1)]
    gain = [1 / math.log2(r + 2) for r in range(10)]
    return {
        "R@1": float(hits[0]),
        "R@10": float(any(hits[:10])),
        "P@1": sum(hits[:1]) / 1,
        "RP": sum(hits[:relevant]) / relevant,
        "MAP@R": sum(precision[:relevant]) / relevant,
        "mAP": sum(precision) / relevant,
        "mAP@10/R": sum(precision[:10]) / relevant,
        "MRR": 1 / (hits.index(True) + 1),
        "NDCG@10": sum(g for g, hit in zip(gain, hits) if hit) / sum(gain[:relevant]),
    }


def loop_groups(a: list[int], b: list[int]) -> Scores:
    """Two ways to group the same samples, compared."""
    total, in_a, in_b, in_both = len(a), Counter(a), Counter(b), Counter(zip(a, b))
    entropy = [-sum(n / total * math.log(n / total) for n in size.values()) for size in (in_a, in_b)]
    shared = sum(n / total * math.log(n * total / (in_a[p] * in_b[q])) for (p, q), n in in_both.items())
    chance = 0.0  # what groups of these sizes share on average
    for p in in_a.values():
        for q in in_b.values():
            for n in range(max(1, p + q - total), min(p, q) + 1):
                likely = math.comb(p, n) * math.comb(total - p, q - n) / math.comb(total, q)
                chance += likely * n / total * math.log(n * total / (p * q))
    both = one = 0
    for i, j in combinations(range(total), 2):
        both += a[i] == a[j] and b[i] == b[j]
        one += (a[i] == a[j]) != (b[i] == b[j])
    return {
        "NMI": shared / (sum(entropy) / 2),
        "NMI_geometric": shared / math.sqrt(math.prod(entropy)),
        "AMI": (shared - chance) / (sum(entropy) / 2 - chance),
        "F1": 2 * both / (2 * both + one),
    }


def split_pairs(y: list[int], sim: list[list[float]]) -> tuple[list[float], list[float]]:
    """Cosines of the pairs of one class, and of all others."""
    pairs = list(combinations(range(len(y)), 2))
    return [sim[i][j] for i, j in pairs if y[i] == y[j]], [sim[i][j] for i, j in pairs if y[i] != y[j]]


def loop_pairs(y: list[int], sim: list[list[float]]) -> Scores:
    same, different = (sorted(own) for own in split_pairs(y, sim))
    wins = sum((bisect_left(different, s) + bisect_right(different, s)) / 2 for s in same)
    accepted = 0.0
    for threshold in same:
        if len(different) - bisect_left(different, threshold) <= 0.01 * len(different):
            accepted = max(accepted, (len(same) - bisect_left(same, threshold)) / len(same))
    return {"AUROC": wins / len(same) / len(different), "TAR@FAR=0.01": accepted}


def by_pml(data: Data) -> Scores:
    """At its defaults (faiss, all neighbours); k = 10 for mAP@10."""
    asks, device = torch.tensor(data.asks), torch.device("cpu")
    sides = (data.z, data.y) if data.gallery is None else (
        data.z[asks], data.y[asks], data.z[data.gallery], data.y[data.gallery]
    )  # fmt: skip
    full = AccuracyCalculator(device=device, kmeans_func=lambda z, k: data.cluster[asks]).get_accuracy(*sides)
    ten = AccuracyCalculator(include=("mean_average_precision",), k=10, device=device).get_accuracy(*sides)
    return {
        "R@1": full["precision_at_1"],
        "P@1": full["precision_at_1"],
        "RP": full["r_precision"],
        "MAP@R": full["mean_average_precision_at_r"],
        "mAP": full["mean_average_precision"],
        "mAP@10/R": ten["mean_average_precision"],
        "MRR": full["mean_reciprocal_rank"],
        "NMI": full["NMI"],
        "AMI": full["AMI"],
    }


def by_sklearn(data: Data, sim: list[list[float]]) -> Scores:
    """Of the cosines of the loops. Its own means over queries, where it takes them."""
    y, group = data.y.numpy(), data.cluster.numpy()
    answers = [data.answers(q) for q in data.asks]
    near = np.array([[sim[q][j] for j in own] for q, own in zip(data.asks, answers)])
    hits = np.array([y[own] == y[q] for q, own in zip(data.asks, answers)]).astype(int)
    same, different = split_pairs(y.tolist(), sim)
    truth, score = [1] * len(same) + [0] * len(different), same + different
    far, tar, _ = peer.roc_curve(truth, score)
    (_, false), (missed, true) = peer.cluster.pair_confusion_matrix(y, group).tolist()
    with warnings.catch_warnings(action="ignore"):  # it says so where a query has nothing to find
        precision = peer.average_precision_score(hits, near, average="samples")
    return {
        "mAP": precision,
        "NDCG@10": peer.ndcg_score(hits, near, k=10),
        "NMI": peer.normalized_mutual_info_score(y, group),
        "NMI_geometric": peer.normalized_mutual_info_score(y, group, average_method="geometric"),
        "AMI": peer.adjusted_mutual_info_score(y, group),
        "F1": 2 * true / (2 * true + false + missed),
        "AUROC": peer.roc_auc_score(truth, score),
        "TAR@FAR=0.01": float(tar[far <= 0.01].max()),
    }
