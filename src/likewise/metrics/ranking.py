"""Retrieval metrics per query, all from the ranks of the hits; NaN where a query has nothing to find.

Names: `R@k`, `P@k`, `RP` and `MAP@R`, as in the papers.
"""

from __future__ import annotations

import re
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.contracts import Metric
from likewise.errors import nearest_name
from likewise.metrics import spectrum
from likewise.types import LikewiseError, Retrieval

NAMES = {
    "R@k": "1 if a relevant item is among the first k answers, else 0",
    "P@k": "share of relevant items among the first k answers",
    "RP": "share of relevant items among the first R answers, R = how many there are to find (R-precision)",
    "MAP@R": "mean over the first R ranks of precision at that rank where it is a hit, 0 where not",
}


def metric(name: str) -> Metric:
    """The metric of this name."""
    found = re.fullmatch(r"([RP])@([1-9]\d*)", name)
    if found:
        return partial(recall_at if found[1] == "R" else precision_at, k=int(found[2]))
    if name in ("RP", "MAP@R"):
        return r_precision if name == "RP" else map_at_r
    if spectrum.of_the_set(name):
        raise LikewiseError(
            f"metrics: '{name}' is one number for a whole set, but a metric per query is wanted here; "
            f"take one of {', '.join(NAMES)} (k a number, as in R@1)"
        )
    known = [*NAMES, *spectrum.NAMES]
    raise LikewiseError(
        f"metrics: there is no '{name}'{nearest_name(name, known)} There are {', '.join(known)} (k a number, as in R@1)"
    )


def largest_k(names) -> int:
    """How deep the rankings must go for these metrics."""
    return max([int(n.split("@")[1]) for n in names if re.fullmatch(r"[RP]@\d+", n)], default=1)


def recall_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Whether anything relevant is among the first k answers.

    Formula: 1[min_i rank_i <= k]
    """
    return (_sum_over_hits(found, (found.hit_rank <= _deep_enough(found, k)).double()) > 0).double() + _nan(found)


def precision_at(found: Retrieval, k: int) -> Float[Tensor, "Q"]:
    """Share of relevant items among the first k answers.

    Formula: |{i: rank_i <= k}| / k
    """
    return _sum_over_hits(found, (found.hit_rank <= _deep_enough(found, k)).double()) / k + _nan(found)


def r_precision(found: Retrieval) -> Float[Tensor, "Q"]:
    """Precision at R, the number of relevant items.

    Formula: |{i: rank_i <= R}| / R
    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.
    """
    within = found.hit_rank <= found.relevant[_owner(found)]
    return _sum_over_hits(found, within.double()) / found.relevant + _nan(found)


def map_at_r(found: Retrieval) -> Float[Tensor, "Q"]:
    """Mean average precision at R.

    Formula: 1/R sum_{i: rank_i <= R} i / rank_i, hits counted i = 1, 2, ... by rank
    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.
    """
    owner = _owner(found)
    number = torch.arange(len(found.hit_rank), device=owner.device) - found.start[owner] + 1
    precision = (number / found.hit_rank.double()).where(found.hit_rank <= found.relevant[owner], 0.0)
    return _sum_over_hits(found, precision) / found.relevant + _nan(found)


def _owner(found: Retrieval) -> Tensor:
    """Which query each hit belongs to."""
    queries = torch.arange(len(found.relevant), device=found.start.device)
    return queries.repeat_interleave(found.start.diff())


def _sum_over_hits(found: Retrieval, value: Tensor) -> Tensor:
    total = torch.zeros(len(found.relevant), dtype=torch.float64, device=value.device)
    return total.index_add_(0, _owner(found), value)


def _deep_enough(found: Retrieval, k: int) -> int:
    short = found.depth < k
    if short.any():
        raise LikewiseError(
            f"metrics: rank {k} is wanted, but the ranking ends at {int(found.depth.min())}; "
            "rank deeper (k), or ask for a smaller k: the gallery may be that small"
        )
    return k


def _nan(found: Retrieval) -> Tensor:
    """NaN for queries with nothing to find, else 0."""
    return torch.zeros_like(found.relevant, dtype=torch.float64).masked_fill(found.relevant == 0, torch.nan)
