"""Retrieval errors as pairs of samples: different classes that are close, and the same class that is far apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.retrieval import integer_scores
from likewise.core.retrieval.ranking import nearest
from likewise.core.similarity import squared_distance
from likewise.curate.audit.records import RetrievalErrors, WrongPairs
from likewise.curate.audit.single_scores import check_labelled, class_sizes
from likewise.score.error_overlap import most_wrong

SIMILARITY_BLOCK_SIZE = 2**24
"""Maximum number of similarities in memory when the nearest sample of the same class is searched."""


class Group(NamedTuple):
    """Pairs whose queries are of one class; `member` are their positions among all pairs."""

    label: int
    wrong: int  # queries of the class with an error, in the group or not
    size: int
    member: Int[Tensor, "M"]


@torch.no_grad()
def find_pairs(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], group: Int[Tensor, "N kinds"] | None = None
) -> RetrievalErrors:
    """Return all errors of Recall@1 as pairs, from both sides; by cosine, each sample against all others.

    Args:
        group: kinds of groups; a sample is not compared with samples that share one of its groups (-1: no group).
    """
    check_labelled("find_pairs", z, y)
    group = y.new_empty((len(y), 0)) if group is None else group
    row, sim = nearest(z, z, 1, own=torch.arange(len(z), device=z.device), group=group, gallery_group=group)
    wrong, sim = row[:, 0], sim[:, 0]
    query = ((y[wrong] != y) & (wrong >= 0)).nonzero()[:, 0]
    mate, near = _nearest_same_class(z, y, group, query)
    first = sim[query].argsort(descending=True, stable=True)
    last = near.argsort(stable=True)
    last = last[mate[last] >= 0]
    confusion = WrongPairs(query, wrong[query], wrong[query], mate, squared_distance(sim[query]))
    mis_similar = WrongPairs(query, mate, wrong[query], mate, squared_distance(near))
    return RetrievalErrors(*(WrongPairs(*(t[o] for t in p)) for p, o in ((confusion, first), (mis_similar, last))))


def _nearest_same_class(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], group: Int[Tensor, "N kinds"], query: Int[Tensor, "Q"]
) -> tuple[Int[Tensor, "Q"], Float[Tensor, "Q"]]:
    """Return the nearest sample of the query's class (of ties the lowest row) and its cosine; -1 and NaN if there is none.

    Samples that share a group with the query are left out.

    Rows are sorted by class, so a block of queries is compared only with the rows of their classes.
    """
    order = y.argsort(stable=True)
    at = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))[query].sort().values
    side, y, group = integer_scores.prepare(z[order], z.device, None, "z"), y[order], group[order]
    start, end = torch.searchsorted(y, y[at]), torch.searchsorted(y, y[at], right=True)
    mate, near = torch.full_like(y, -1, dtype=torch.int64), torch.full_like(y, torch.nan, dtype=torch.float64)
    for block in integer_scores.row_slices(len(at), min(256, SIMILARITY_BLOCK_SIZE // len(y))):
        some = at[block]
        band = torch.arange(int(start[block][0]), int(end[block][-1]), device=y.device)
        key = side.whole(some) @ side.whole(slice(int(band[0]), int(band[-1]) + 1)).T
        hidden = (y[some, None] != y[band]) | (some[:, None] == band)
        for kind in group.T:
            hidden |= (kind[some, None] == kind[band]) & (kind[band] >= 0)
        key = key.masked_fill(hidden, -torch.inf)
        best = key.amax(1, keepdim=True)
        found = order[band.where(key == best, len(y)).amin(1)]
        mate[order[some]] = found.where(best[:, 0] > -torch.inf, -1)
        near[order[some]] = integer_scores.readable(best, side, some)[:, 0]
    return mate[query], near[query]


def group_by_class(
    pairs: WrongPairs, y: Int[Tensor, "N"], top: int = 10, coverage: float = 1.0, by: str = "count"
) -> list[Group]:
    """Return the pairs of the classes with the most errors, one group per class, the worst class first.

    Differs: the paper's text takes all pairs of a class; its code takes those with the most frequently confused classes that
        together have more than half of its errors, at most ten classes. `coverage` is that share; there is no limit of ten.

    Args:
        y: labels of all samples; pairs are positions in it.
        top: number of classes.
        coverage: keep the fewest confused classes that have at least this share of a class's errors.
        by: "count" or "rate", as in `most_wrong`.
    """
    if not 0 < coverage <= 1:
        raise LikewiseError(f"group_by_class: coverage must lie in (0, 1], got {coverage}")
    failed = torch.zeros_like(y, dtype=torch.bool)
    failed[pairs.query] = True
    size, groups = class_sizes(y), []
    for label in most_wrong(failed, y, top, by).tolist():
        member = (y[pairs.query] == label).nonzero()[:, 0]
        confused, which, count = y[pairs.wrong[member]].unique(return_inverse=True, return_counts=True)
        most = count.argsort(descending=True, stable=True)
        before = count[most].cumsum(0) - count[most]
        kept = torch.zeros_like(confused, dtype=torch.bool)
        kept[most[before < coverage * len(member)]] = True
        groups.append(Group(label, len(member), int(size[pairs.query[member[0]]]), member[kept[which]]))
    return groups
