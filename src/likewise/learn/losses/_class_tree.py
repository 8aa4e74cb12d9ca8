"""Class trees from embeddings: classes that are near each other are merged, level by level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


class SpanningTree(NamedTuple):
    """The C - 1 edges of a spanning tree of classes, in the order in which they were added."""

    edge: Int[Tensor, "E 2"]
    distance: Float[Tensor, "E"]


def distance_within(mean: Float[Tensor, "C D"], count: Float[Tensor, "C"]) -> Float[Tensor, "C"]:
    """Return the mean squared distance between two different samples of each class; NaN for a class of one sample.

    For unit embeddings r it follows from the class mean m: sum_ij |r_i - r_j|^2 = 2 n^2 (1 - |m|^2).

    Args:
        mean: mean of the unit embeddings of each class, not scaled to unit length.
        count: number of samples of each class.
    """
    return (2 * (1 - mean.square().sum(1)) * count / (count - 1)).where(count > 1, torch.nan)


@torch.no_grad()
def spanning_tree(mean: Float[Tensor, "C D"]) -> SpanningTree:
    """Return the minimum spanning tree of classes whose distance is the mean squared distance of their samples (Prim).

    For unit embeddings that is 2 - 2 m_p m_q, m the class means. Distances are computed one class at a time, so that
    11,000 classes need no 11,000 x 11,000 matrix.
    """
    size = len(mean)
    alike, parent = mean @ mean[0], torch.zeros(size, dtype=torch.int64, device=mean.device)
    inside = torch.zeros(size, dtype=torch.bool, device=mean.device)
    inside[0] = True
    edges, similarity = [], []
    for _ in range(size - 1):
        new = alike.masked_fill(inside, -torch.inf).argmax(0, keepdim=True)  # stays on the device: no device sync
        edges.append(torch.cat([parent[new], new]))
        similarity.append(alike[new])
        inside.index_fill_(0, new, True)
        now = mean @ mean[new][0]
        nearer = now > alike
        alike, parent = alike.where(~nearer, now), parent.where(~nearer, new)
    if not edges:
        return SpanningTree(parent.new_zeros(0, 2), mean.new_zeros(0))
    return SpanningTree(torch.stack(edges), 2 - 2 * torch.cat(similarity))


def merge_classes(tree: SpanningTree, thresholds: Float[Tensor, "L"]) -> Int[Tensor, "L C"]:
    """Return the node of every class on every level: two classes share one if a chain of classes connects them.

    Neighbours in the chain are nearer than the threshold of the level (single linkage). The last level is one node.

    Args:
        thresholds: ascending.
    """
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    edge, distance = tree.edge.cpu().numpy(), tree.distance.cpu()
    classes, levels = len(edge) + 1, []
    for number, threshold in enumerate(thresholds.cpu()):
        kept = edge if number == len(thresholds) - 1 else edge[(distance < threshold).numpy()]
        graph = coo_array((np.ones(len(kept)), (kept[:, 0], kept[:, 1])), shape=(classes, classes))
        levels.append(torch.as_tensor(connected_components(graph, directed=False)[1], dtype=torch.int64))
    return torch.stack(levels).to(tree.edge.device)
