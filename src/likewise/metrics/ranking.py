"""Retrieval metrics per query, all from the ranks of the hits; NaN where a query has nothing to find.

A name says what is counted, down to which rank (`@`), and, where the field disagrees, what it is divided by (`/`):
`R@10`, `MAP@R`, `mAP@1000/C`. R = how many relevant answers there are, C = R + 1 = the class with the query itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from likewise.contracts import Metric
from likewise.errors import nearest_name
from likewise.types import LikewiseError, Retrieval

WHO_DIVIDES: dict[Literal["R", "C", "min", "hits"], str] = {
    "R": "pytorch-metric-learning",
    "min": "Google Landmarks, Kaggle",
    "hits": "OML, torchmetrics",
    "C": "Roth et al. 2020, whose mAP@1000 it is",
}
"""Who means what by "mAP@k"."""

NAMES = {
    "R@k": "1 if a relevant item is among the first k answers, else 0",
    "P@k": "share of relevant items among the first k answers",
    "RP": "share of relevant items among the first R answers, R = how many there are to find (R-precision)",
    "MAP@R": "mean over the first R ranks of precision at that rank if it is a hit, else 0 (Musgrave et al. 2020)",
    "MRR": "1 / rank of the first relevant answer, however deep",
    "MRR@k": "1 / rank of the first relevant answer, 0 if it is deeper than k",
    "NDCG@k": "gain 1 / log2(rank + 1) of the relevant among the first k answers, as a share of a perfect ranking's",
    "mAP": "average precision over all relevant items, however deep; scikit-learn's, but for ties",
    "mAP/C": "the same divided by C = R + 1, the class with the query; always below 1 (Roth et al. 2020)",
    "mAP@k/R": f"average precision over the first k answers, divided by R ({WHO_DIVIDES['R']})",
    "mAP@k/min": f"average precision over the first k answers, divided by min(R, k) ({WHO_DIVIDES['min']})",
    "mAP@k/hits": f"average precision over the first k answers, divided by the hits among them ({WHO_DIVIDES['hits']})",
    "mAP@k/C": f"average precision over the first k answers, divided by C = R + 1 ({WHO_DIVIDES['C']})",
    "mAP@C": "average precision over the first C = R + 1 answers, divided by C; always below 1 (Roth et al. 2020)",
    "mAP@C/R": "average precision over the first C = R + 1 answers, divided by R: mAP@C put right",
}


class Reach(NamedTuple):
    k: int  # rank to which every ranking must go
    all_hits: bool  # whether the ranks of all relevant answers are needed, however deep


def knows(name: str) -> bool:
    """Whether this names a metric per query."""
    return _parse(name) is not None


def metric(name: str) -> Metric:
    """The metric of this name."""
    parsed = _parse(name)
    if parsed:
        return _METRICS[parsed[0]] if parsed[1] is None else partial(_METRICS[parsed[0]], k=parsed[1])
    if bare := re.fullmatch(r"map@([1-9][0-9]*)", name, re.IGNORECASE):
        meanings = ", ".join(f"mAP@{bare[1]}/{over} ({who})" for over, who in WHO_DIVIDES.items())
        raise LikewiseError(f"metrics: '{name}' means several things; say what to divide by: {meanings}")
    from likewise.metrics import SET_NAMES, of_the_set  # not above: that package imports this module

    if of_the_set(name):
        raise LikewiseError(
            f"metrics: '{name}' is one number for a whole set, but a metric per query is wanted here; "
            f"take one of {', '.join(NAMES)} (k a number, as in R@1)"
        )
    known = [*NAMES, *SET_NAMES]
    for letter, pattern, must in (
        ("@k", "@[-+.0-9]+", "k must be a whole number from 1 on, as in R@1"),
        ("=x", "=.*", "x must be a share from 0 to 1, as in TAR@FAR=0.001"),
    ):
        generic = re.sub(pattern, letter, name)
        if letter in generic and generic in known:
            raise LikewiseError(f"metrics: in {generic} {must}; got '{name}'")
    apart = "names stand apart, as in R@1 R@10; " if "," in name else ""
    raise LikewiseError(
        f"metrics: there is no '{name}'{nearest_name(name, known)} There are {', '.join(known)} ({apart}k a number, as in R@1)"
    )


def reach(names: Iterable[str]) -> Reach:
    """How deep rankings must go for these metrics, if deeper than R + 1 as always. Other names ask for nothing."""
    parsed = [p for p in map(_parse, names) if p]
    all_hits = any(generic in ("MRR", "mAP", "mAP/C") for generic, _ in parsed)
    return Reach(max([k for _, k in parsed if k], default=1), all_hits)


Depth = int | Literal["R", "C"] | None
"""The last rank that counts: a number, R, C = R + 1, or None: all hits count, however deep."""


def recall_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Whether anything relevant is among the first k answers.

    Formula: 1[min_i rank_i <= k]
    """
    return (_sum_over_hits(found, _within(found, k)) > 0).double() + _nan(found)


def precision_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Share of relevant items among the first k answers.

    Formula: |{i: rank_i <= k}| / k
    """
    return _sum_over_hits(found, _within(found, k)) / k + _nan(found)


def r_precision(found: Retrieval) -> Float[Tensor, "Q"]:
    """Precision at R, the number of relevant items.

    Formula: |{i: rank_i <= R}| / R
    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.
    """
    return _sum_over_hits(found, _within(found, "R")) / found.relevant + _nan(found)


def reciprocal_rank(found: Retrieval, k: int | None = None) -> Float[Tensor, "Q"]:
    """How early the first relevant answer comes; 0 where it is deeper than k.

    Formula: 1[rank_1 <= k] / rank_1
    """
    first = _within(found, k) & (_number(found) == 1)
    return _sum_over_hits(found, first / found.hit_rank.double()) + _nan(found)


def ndcg_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Discounted gain of the relevant among the first k answers, as a share of the best there can be.

    Formula: sum_{i: rank_i <= k} 1 / log2(rank_i + 1)  /  sum_{r = 1}^{min(R, k)} 1 / log2(r + 1)
    """
    gained = _within(found, k) / (found.hit_rank.double() + 1).log2()
    best = (1 / torch.arange(2, k + 2, dtype=torch.float64, device=gained.device).log2()).cumsum(0)
    return _sum_over_hits(found, gained) / best[found.relevant.clamp(1, k) - 1] + _nan(found)


def average_precision(
    found: Retrieval, k: Depth = None, *, over: Literal["R", "C", "min", "hits"] = "R"
) -> Float[Tensor, "Q"]:
    """Sum of the precisions at the hits among the first k answers, divided by what the name says.

    Paper: MAP@R (k = d = R): Musgrave et al., A Metric Learning Reality Check, ECCV 2020. mAP@C (k = d = C), mAP@1000
        and mAP (d = C): Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric
        Learning, ICML 2020.
    Formula: 1/d sum_{i: rank_i <= k} i / rank_i, hits counted i = 1, 2, ... by rank; d = R, C = R + 1, min(R, k), or
        the number of these hits (0 where there is none)
    Differs: Roth et al. count 0 for a query with nothing to find; here it is NaN, and means leave it out.
    """
    within = _within(found, k)
    total = _sum_over_hits(found, within * _number(found) / found.hit_rank.double())
    if over == "hits":
        return total / _sum_over_hits(found, within).clamp_min(1) + _nan(found)
    divisor = found.relevant.clamp_max(k) if over == "min" else found.relevant + (over == "C")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return total / divisor + _nan(found)


_METRICS = {
    "R@k": recall_at,
    "P@k": precision_at,
    "RP": r_precision,
    "MAP@R": partial(average_precision, k="R"),
    "MRR": reciprocal_rank,
    "MRR@k": reciprocal_rank,
    "NDCG@k": ndcg_at,
    "mAP": average_precision,
    "mAP/C": partial(average_precision, over="C"),
    **{f"mAP@k/{over}": partial(average_precision, over=over) for over in WHO_DIVIDES},
    "mAP@C": partial(average_precision, k="C", over="C"),
    "mAP@C/R": partial(average_precision, k="C"),
}


def _parse(name: str) -> tuple[str, int | None] | None:
    """The name as in NAMES, and its k: "R@10" -> ("R@k", 10), "RP" -> ("RP", None). None: no metric per query."""
    found = re.fullmatch(r"(\w+@)([1-9][0-9]*)(/\w+)?", name)
    generic, k = (f"{found[1]}k{found[3] or ''}", int(found[2])) if found else (name, None)
    return (generic, k) if generic in NAMES and ("@k" in generic) == (k is not None) else None


def _owner(found: Retrieval) -> Int[Tensor, "H"]:
    """Which query each hit belongs to."""
    queries = torch.arange(len(found.relevant), device=found.start.device)
    return queries.repeat_interleave(found.start.diff())


def _number(found: Retrieval) -> Int[Tensor, "H"]:
    """1 for a query's first hit, 2 for its second, ..."""
    return torch.arange(1, len(found.hit_rank) + 1, device=found.start.device) - found.start[_owner(found)]


def _sum_over_hits(found: Retrieval, value: Shaped[Tensor, "H"]) -> Float[Tensor, "Q"]:
    total = torch.zeros(len(found.relevant), dtype=torch.float64, device=value.device)
    return total.index_add_(0, _owner(found), value.double())


def _within(found: Retrieval, k: Depth) -> Bool[Tensor, "H"]:
    """Which hits are among the first k answers. Raises where the ranking does not go that deep."""
    complete = found.start.diff() == found.relevant
    if k is None:
        if not complete.all():
            raise LikewiseError(
                f"metrics: the ranks of all relevant answers are wanted, but {int((~complete).sum())} of "
                f"{len(complete)} rankings end before the last; rank with all_hits=True, or ask for a metric with @k"
            )
        return torch.ones_like(found.hit_rank, dtype=torch.bool)
    last = torch.full_like(found.relevant, k) if isinstance(k, int) else found.relevant + (k == "C")
    short = found.depth < last if isinstance(k, int) else (found.depth < last) & ~complete
    if short.any():
        raise LikewiseError(
            f"metrics: rank {int(last[short].max())} is wanted, but the ranking ends at "
            f"{int(found.depth[short].min())}; rank deeper (k), or ask for a smaller k: the gallery may be that small"
        )
    return found.hit_rank <= last[_owner(found)]


def _nan(found: Retrieval) -> Float[Tensor, "Q"]:
    """NaN for queries with nothing to find, else 0."""
    return torch.zeros_like(found.relevant, dtype=torch.float64).masked_fill(found.relevant == 0, torch.nan)
