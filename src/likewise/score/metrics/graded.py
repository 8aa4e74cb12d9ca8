"""Metrics per query of graded relevance, where some results are more relevant than others."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.types import LikewiseError, Retrieval
from likewise.score.metrics._hits import hit_number, nan_without_relevant, query_of_hit, sum_over_hits, within_depth

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
