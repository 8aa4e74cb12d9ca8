"""Retrieval metrics per query, computed from the ranks of the hits; NaN for a query without relevant gallery rows.

A name consists of the metric, the last rank that counts (after `@`) and, where definitions differ, the divisor (after `/`):
`R@10`, `MAP@R`, `mAP@1000/C`. R = number of relevant gallery rows, C = R + 1 = size of the class with the query.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.types import Retrieval
from likewise.score.metrics._hits import Depth, hit_number, nan_without_relevant, sum_over_hits, within_depth
from likewise.score.metrics.graded import graded_ndcg_at

DIVISOR_USERS: dict[Literal["R", "C", "min", "hits"], str] = {
    "R": "pytorch-metric-learning",
    "min": "Google Landmarks, Kaggle",
    "hits": "OML, torchmetrics",
    "C": "Roth et al. 2020, there called mAP@1000",
}
"""Divisor of "mAP@k" -> the libraries or papers that use it."""


def recall_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Return 1 if a relevant item is among the first k results, else 0.

    Formula: 1[min_i rank_i <= k]
    """
    return (sum_over_hits(found, within_depth(found, k)) > 0).double() + nan_without_relevant(found)


def precision_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Return the share of relevant items among the first k results.

    Formula: |{i: rank_i <= k}| / k
    """
    return sum_over_hits(found, within_depth(found, k)) / k + nan_without_relevant(found)


def r_precision(found: Retrieval) -> Float[Tensor, "Q"]:
    """Return the precision at R, the number of relevant items.

    Formula: |{i: rank_i <= R}| / R
    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.
    """
    return sum_over_hits(found, within_depth(found, "R")) / found.relevant + nan_without_relevant(found)


def reciprocal_rank(found: Retrieval, k: int | None = None) -> Float[Tensor, "Q"]:
    """Return 1 / rank of the first relevant result; 0 if that rank is above k.

    Formula: 1[rank_1 <= k] / rank_1
    """
    first = within_depth(found, k) & (hit_number(found) == 1)
    return sum_over_hits(found, first / found.hit_rank.double()) + nan_without_relevant(found)


def ndcg_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Return the discounted gain of the first k results, divided by that of a perfect ranking.

    The gain of a result is its relevance, which is 1 or 0 unless it is graded (`graded_ndcg_at`).

    Formula: sum_{i: rank_i <= k} 1 / log2(rank_i + 1)  /  sum_{r = 1}^{min(R, k)} 1 / log2(r + 1)
    """
    if found.value is not None:
        return graded_ndcg_at(found, k)
    gained = within_depth(found, k) / (found.hit_rank.double() + 1).log2()
    best = (1 / torch.arange(2, k + 2, dtype=torch.float64, device=gained.device).log2()).cumsum(0)
    return sum_over_hits(found, gained) / best[found.relevant.clamp(1, k) - 1] + nan_without_relevant(found)


def average_precision(
    found: Retrieval, k: Depth = None, *, over: Literal["R", "C", "min", "hits"] = "R"
) -> Float[Tensor, "Q"]:
    """Return the sum of the precisions at the hits among the first k results, divided by d, which `over` selects.

    Paper: MAP@R (k = d = R): Musgrave et al., A Metric Learning Reality Check, ECCV 2020. mAP@C (k = d = C), mAP@1000
        and mAP (d = C): Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric
        Learning, ICML 2020.
    Formula: 1/d sum_{i: rank_i <= k} i / rank_i, hits counted i = 1, 2, ... by rank; d = R, C = R + 1, min(R, k), or
        the number of these hits (the value is 0 without hits)
    Differs: Roth et al. count 0 for a query without relevant items; here it is NaN, which means ignore. They print mAP@C and
        mAP@1000 as precisions, hits / C and hits / 1000 (eqs. 29 and 30); their code and tables have this average precision.
    """
    within = within_depth(found, k)
    total = sum_over_hits(found, within * hit_number(found) / found.hit_rank.double())
    if over == "hits":
        return total / sum_over_hits(found, within).clamp_min(1) + nan_without_relevant(found)
    divisor = found.relevant.clamp_max(k) if over == "min" else found.relevant + (over == "C")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return total / divisor + nan_without_relevant(found)
