"""Metrics per query in the class tree, computed from the lowest common ancestors of the query and its first results."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.types import LikewiseError, TreeRetrieval


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
