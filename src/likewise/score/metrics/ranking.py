"""Retrieval metrics per query, computed from the ranks of the hits; NaN for a query without relevant gallery rows.

A name consists of the metric, the last rank that counts (after `@`) and, where definitions differ, the divisor (after `/`):
`R@10`, `MAP@R`, `mAP@1000/C`. R = number of relevant gallery rows, C = R + 1 = size of the class with the query. Metrics of
graded relevance and metrics in the class tree come last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from likewise.core.types import LikewiseError, Retrieval, TreeRetrieval

Depth = int | Literal["R", "C"] | None
"""The last rank that counts: an integer, R, C = R + 1, or None: all hits count."""


def query_of_hit(found: Retrieval) -> Int[Tensor, "H"]:
    """Return the query of each hit."""
    queries = torch.arange(len(found.relevant), device=found.start.device)
    return queries.repeat_interleave(found.start.diff())


def starts(hits: Int[Tensor, "Q"]) -> Int[Tensor, "Q1"]:
    """Return where the hits of each query begin, from the number of hits of each; the last entry is the number of all."""
    return torch.cat([hits.new_zeros(1), hits.cumsum(0)])


def first_results(found: Retrieval, count: int) -> Retrieval:
    """Return the ranking with this number of results of every query; its hits stay."""
    kept = {
        name: side[:, :count] for name in ("row", "match", "sim", "value") if (side := getattr(found, name)) is not None
    }
    return replace(found, **kept)


def hit_number(found: Retrieval) -> Int[Tensor, "H"]:
    """Return the number of each hit among the hits of its query, from 1."""
    return torch.arange(1, len(found.hit_rank) + 1, device=found.start.device) - found.start[query_of_hit(found)]


def sum_over_hits(found: Retrieval, value: Shaped[Tensor, "H"]) -> Float[Tensor, "Q"]:
    """Return the sum of a value over the hits of each query, in float64."""
    total = torch.zeros(len(found.relevant), dtype=torch.float64, device=value.device)
    return total.index_add_(0, query_of_hit(found), value.double())


def within_depth(found: Retrieval, k: Depth) -> Bool[Tensor, "H"]:
    """Return the mask of the hits among the first k results. Raise if a ranking is not that deep."""
    complete = found.start.diff() == found.relevant
    if k is None:
        if not complete.all():
            raise LikewiseError(
                f"metrics: the ranks of all relevant results are needed, but {int((~complete).sum())} of "
                f"{len(complete)} rankings end before the last one; rank with all_hits=True, or use a metric with @k"
            )
        return torch.ones_like(found.hit_rank, dtype=torch.bool)
    last = torch.full_like(found.relevant, k) if isinstance(k, int) else found.relevant + (k == "C")
    short = found.depth < last if isinstance(k, int) else (found.depth < last) & ~complete
    if short.any():
        raise LikewiseError(
            f"metrics: rank {int(last[short].max())} is needed, but the ranking ends at rank "
            f"{int(found.depth[short].min())}; rank deeper (k), or use a metric with a smaller k if the gallery is that small"
        )
    return found.hit_rank <= last[query_of_hit(found)]


def nan_without_relevant(found: Retrieval) -> Float[Tensor, "Q"]:
    """Return NaN for queries without relevant gallery rows, else 0."""
    return torch.zeros_like(found.relevant, dtype=torch.float64).masked_fill(found.relevant == 0, torch.nan)


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


VALUE_UNIT = 2.0**40
"""Relevances are rounded to this share of one, so that their sums are exact and equal for every order of summation."""


def graded_ndcg_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Return the discounted relevance of the first k results, divided by that of the k most relevant gallery rows.

    Paper: Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, TOIS 2002.
    Formula: sum_{i = 1}^{k} r_i / log2(i + 1)  /  sum_{i = 1}^{k} r*_i / log2(i + 1); r* are the relevances of all gallery
        rows, highest first
    Differs: the gain is linear; 2^r - 1 of web search is meant for grades 0 to 4.
    """
    assert found.value is not None and found.best is not None
    if min(found.value.shape[1], found.best.shape[1]) < k:
        raise LikewiseError(
            f"metrics: the relevance of {k} results of every query is needed, got {found.value.shape[1]}; rank deeper (k)"
        )
    discount = 1 / torch.arange(2, k + 2, dtype=torch.float64, device=found.value.device).log2()
    gain = found.value[:, :k].double().nan_to_num(0.0)
    query, at = gain.nonzero(as_tuple=True)
    gained = torch.zeros(len(gain), dtype=torch.float64, device=gain.device)
    gained.index_add_(0, query, gain[query, at] * discount[at])
    best = (found.best[:, :k].double() * discount).cumsum(1)[:, -1]
    return gained / best + nan_without_relevant(found)


def graded_average_precision(found: Retrieval) -> Float[Tensor, "Q"]:
    """Return the average precision of graded relevance: that of a reader with a random threshold of relevance.

    Paper: Robertson, Kanoulas and Yilmaz, Extending average precision to graded relevance judgments, SIGIR 2010 (GAP), with a
        threshold of equal chance between 0 and 1; Ramzi et al., Hierarchical average precision training for pertinent image
        retrieval, ECCV 2022, have the same formula (H-AP).
    Formula: 1 / sum_i r_i  sum_i 1 / rank_i sum_{j: rank_j <= rank_i} min(r_i, r_j), over the gallery rows of relevance above 0
    Differs: with relevance 0 and 1 it is mAP, of the same bits.
    """
    every = within_depth(found, None)
    number = hit_number(found)
    if found.hit_value is None:
        value, smaller = every.double(), number.double()
    else:
        whole = (found.hit_value.double() * VALUE_UNIT).round().long()
        value, smaller = whole.double() / VALUE_UNIT, _sum_of_smaller(found, whole, number).double() / VALUE_UNIT
    total = sum_over_hits(found, smaller / found.hit_rank.double())
    return total / sum_over_hits(found, value) + nan_without_relevant(found)


def agreement(found: Retrieval) -> Float[Tensor, "Q"]:
    """Return the share of the judged triplets of a query (as anchor) in which the nearer sample has the higher similarity.

    Formula: |{(a, p, n): s_ap > s_an}| / |{(a, p, n)}|; equal similarities count as wrong. NaN without triplets.
    """
    if found.agreement is None:
        raise LikewiseError(
            "metrics: triplet-agreement needs judged triplets of the evaluated rows; give a --relevance that has them, such as "
            "JudgedTriplets"
        )
    return found.agreement


def _sum_of_smaller(found: Retrieval, value: Int[Tensor, "H"], number: Int[Tensor, "H"]) -> Int[Tensor, "H"]:
    """Return the sum of min(own value, other value) over the hits of the query up to each hit.

    Hits are split by the bits of their value's rank, the highest bit first: of two hits that first differ in a bit, the one with
    the bit 0 is smaller. One pass per bit; sums wrap around without harm, because only their differences count.
    """
    rank = value.unique(return_inverse=True)[1]
    bits = int(rank.max()).bit_length() if len(rank) else 0
    query = query_of_hit(found)
    smaller, count = (
        torch.zeros_like(value),
        torch.zeros_like(value),
    )  # sum and number of smaller values before each hit
    for bit in reversed(range(bits)):
        group, order = ((query << (bits - bit - 1)) + (rank >> (bit + 1))).sort(stable=True)
        low = ((rank[order] >> bit) & 1) == 0
        first = torch.searchsorted(group, group)
        for total, part in ((smaller, value[order] * low), (count, low.long())):
            upto = torch.cat([part.new_zeros(1), part.cumsum(0)])
            before = upto[:-1] - upto[first]
            total[order] += before * ~low
    return smaller + value * (number - count)


def severity(found: TreeRetrieval) -> Float[Tensor, "Q"]:
    """Return the severity of a mistake: the height of the lowest common ancestor of query and first result, as a share.

    Low is good. NaN for a query whose first result is of its class, and for one without relevant gallery rows.

    Paper: Bertinetto et al., Making Better Mistakes, CVPR 2020: the hierarchical distance of a mistake.
    Formula: height(lca(query, first result)) / height(root); the height of a node is the number of steps to the lowest class
        below it
    Differs: the paper prints the height itself; a share of the tree's height is comparable between trees.
    """
    first = _first(found, 1)[:, :1]
    height = found.height.gather(1, first.clamp_min(0))[:, 0].double() / found.height[:, 0].clamp_min(1)
    mistake = (first[:, 0] >= 0) & (first[:, 0] < found.depth) & (_of_class(found) > 0)
    return height.masked_fill(~mistake, torch.nan)


def tree_ndcg_at(found: TreeRetrieval, k: int) -> Float[Tensor, "Q"]:
    """Return the discounted gain of the first k results, divided by that of a perfect ranking.

    A result gains the depth of its lowest common ancestor with the query: 0 at the root, the depth of the query's class for
    its own class. NaN for a query without relevant gallery rows.

    Paper: Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, TOIS 2002, with depth as relevance.
    Formula: sum_{r = 1}^{k} d_r / log2(r + 1)  /  sum_{r = 1}^{k} d*_r / log2(r + 1); d* are the depths of all gallery rows,
        deepest first
    Differs: Ramzi et al. (HAPPIER, ECCV 2022) use the gain 2^d - 1.
    """
    discount = 1 / torch.arange(2, k + 2, dtype=torch.float64, device=found.shared.device).log2()
    gained = (_first(found, k).clamp_min(0) * discount).sum(1)
    best = torch.zeros_like(gained)
    upto = torch.cat([discount.new_zeros(1), discount.cumsum(0)])
    for related in found.related.T[1:]:  # a row at depth d counts once at each of the depths 1 to d
        best += upto[related.clamp_max(k)]
    return (gained / best).masked_fill(_of_class(found) == 0, torch.nan)


def _first(found: TreeRetrieval, k: int) -> Tensor:
    """Return the depths of the first k results. Raise if there are fewer."""
    if found.shared.shape[1] < k:
        raise LikewiseError(
            f"metrics: {k} results of every query are needed, got {found.shared.shape[1]}; rank deeper (k)"
        )
    return found.shared[:, :k]


def _of_class(found: TreeRetrieval) -> Tensor:
    """Return the number of gallery rows of the query's own class."""
    return found.related.gather(1, found.depth[:, None])[:, 0]
