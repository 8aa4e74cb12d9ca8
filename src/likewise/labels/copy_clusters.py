"""Nearest neighbours by features, and clusters of near copies among them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

SIMILARITY_BLOCK_SIZE = 2**25
"""Maximum number of similarities that are computed at a time."""

MAX_COPY_DISTANCE = 0.35
"""Maximum distance of two near copies, as a share of the distance to the neighbour `SCALE_NEIGHBOURS_COUNT` of both."""

MAX_CONFLICT_SHARE = 0.05
"""Largest share of rows in conflicting exact copies that is taken for wrong labels; above it, images may have several labels."""

SCALE_NEIGHBOURS_COUNT = 16
"""Rank of the neighbour whose distance is the local scale; more copies of one image than this are not recognised."""


def nearest_neighbours(z: Float[Tensor, "N D"], k: int) -> tuple[Int[Tensor, "N k"], Float[Tensor, "N k"]]:
    """Return the k nearest other rows of every row of unit vectors, and their distances, the nearest first.

    Similarities are plain float32 products: `retrieval.ranking`, which is exact to the last digit, is slower and not needed here.
    """
    k, row, distance = min(k, len(z) - 1), [], []
    for rows in torch.arange(len(z), device=z.device).split(max(1, SIMILARITY_BLOCK_SIZE // len(z))):
        similarity = z[rows] @ z.T
        similarity[torch.arange(len(rows), device=z.device), rows] = -torch.inf
        top = similarity.topk(k, 1)
        row.append(top.indices)
        distance.append((2 - 2 * top.values).clamp_min(0).sqrt())
    return torch.cat(row), torch.cat(distance)


def copy_clusters(
    near: Int[Tensor, "N k"], distance: Float[Tensor, "N k"], y: Int[Tensor, "N"], group: Int[Tensor, "N"] | None = None
) -> Int[Tensor, "N"]:
    """Return the number of the cluster of every sample: near copies, and samples of one group, are in one cluster.

    Two samples are near copies if their distance is far below the distance to the neighbours number `SCALE_NEIGHBOURS_COUNT` of
    both. A cluster that has more than half of the samples of a label is not taken for copies but for a compact class, and is
    divided again.

    Args:
        near, distance: as `nearest_neighbours` returns them.
        group: samples with the same number, 0 or more, belong together; -1: none.
    """
    scale = distance[:, min(SCALE_NEIGHBOURS_COUNT, distance.shape[1]) - 1]
    limit = MAX_COPY_DISTANCE * torch.minimum(scale[:, None], scale[near])
    i, place = ((distance < limit) & (distance.shape[1] >= SCALE_NEIGHBOURS_COUNT)).nonzero(as_tuple=True)
    cluster = connected(len(y), i, near[i, place])
    classes = int(y.max()) + 1
    pair, at, count = (cluster * classes + y).unique(return_inverse=True, return_counts=True)
    shared = torch.bincount(cluster, minlength=len(y))[pair // classes] > 1
    compact = (shared & (2 * count > torch.bincount(y, minlength=classes)[pair % classes]))[at]
    divided = torch.zeros_like(y, dtype=torch.bool).index_fill_(0, cluster[compact], True)[cluster]
    cluster = torch.where(divided, torch.arange(len(y), device=y.device), cluster)
    if group is None:
        return cluster.unique(return_inverse=True)[1]
    known = (group >= 0).nonzero()[:, 0]
    first = torch.full((int(group.max()) + 1 if len(known) else 1,), len(y), device=y.device)
    first.scatter_reduce_(0, group[known], known, "amin")
    rows = torch.arange(len(y), device=y.device)
    joined = connected(len(y), torch.cat([rows, known]), torch.cat([cluster, first[group[known]]]))
    return joined.unique(return_inverse=True)[1]


def connected(count: int, i: Int[Tensor, "E"], j: Int[Tensor, "E"]) -> Int[Tensor, "N"]:
    """Return the smallest row of the connected component of every row of a graph with the edges (i, j)."""
    root = torch.arange(count, device=i.device)
    while True:
        low = torch.minimum(root[i], root[j])
        after = root.scatter_reduce(0, i, low, "amin").scatter_reduce(0, j, low, "amin")
        after = after[after]
        if torch.equal(after, root):
            return root
        root = after
