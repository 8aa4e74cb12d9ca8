"""Nearest rows of many queries: exact by blocked products while that is cheap, otherwise by an inverted file of faiss."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

SIMILARITY_BLOCK_SIZE = 2**25
"""Maximum number of similarities, or of votes with probabilities, that are computed at a time."""

MAX_EXACT_PRODUCTS = 2**38
"""Maximum number of products (queries x rows x dimensions) with which a search is exact on a CPU: some seconds."""

GPU_FACTOR = 64
"""How many times as many products a GPU computes exactly."""

CELLS_PER_ROOT, PROBED_CELLS = 4.0, 32
"""Cells of the inverted file per square root of the number of rows, and the number of cells that a query looks in."""

TRAINING_ROWS_PER_CELL, TRAINING_STEPS = 40, 8
"""Number of rows per cell that the cells are fitted to, and of steps of k-means."""

RECALL_QUERIES_COUNT = 256
"""Number of random queries whose exact nearest rows measure the recall of an approximate search."""


class Neighbours(NamedTuple):
    """The nearest rows of every query with their Euclidean distances, the nearest first, and the measured recall."""

    row: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]
    recall: float = 1.0  # share of the exact nearest rows that were found; 1: the search was exact


def nearest_neighbours(z: Float[Tensor, "N D"], k: int, seed: int = 0) -> Neighbours:
    """Return the k nearest other rows of every row of unit vectors.

    The search is exact up to `MAX_EXACT_PRODUCTS`, N x N x D, and above it if faiss is not installed. Otherwise it costs about
    N x sqrt(N) x D. Similarities are plain float32 products: `retrieval.ranking`, which is exact to the last digit, is slower
    and not needed here.

    Args:
        seed: of the cells of an approximate search, and of the rows that measure its recall.
    """
    k = min(k, len(z) - 1)
    rows = torch.arange(len(z), device=z.device)
    if not is_large(len(z), z) or (found := by_inverted_file(z, z, k + 1, seed)) is None:
        return _exact_neighbours(z, rows, k)
    own = found.row == rows[:, None]
    own[~own.any(1), -1] = True  # of exact copies, more than k may come before the row itself
    near = Neighbours(found.row[~own].view(-1, k), found.distance[~own].view(-1, k))
    drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:RECALL_QUERIES_COUNT].to(z.device)
    exact = _exact_neighbours(z, drawn, k).row
    return near._replace(recall=float((near.row[drawn][:, :, None] == exact[:, None, :]).any(2).float().mean()))


def nearest_centres(z: Float[Tensor, "N D"], centre: Float[Tensor, "C D"], k: int, seed: int = 0) -> Int[Tensor, "N k"]:
    """Return the k nearest centres of every row by Euclidean distance, exact or approximate as in `nearest_neighbours`."""
    k = min(k, len(centre))
    if is_large(len(centre), z) and (found := by_inverted_file(z, centre, k, seed)) is not None:
        return found.row
    near, size = torch.empty(len(z), k, dtype=torch.long, device=z.device), -0.5 * centre.square().sum(1)
    for rows in torch.arange(len(z), device=z.device).split(max(1, SIMILARITY_BLOCK_SIZE // len(centre))):
        near[rows] = torch.addmm(size, z[rows], centre.T).topk(k, 1).indices
    return near


def is_large(count: int, queries: Float[Tensor, "N D"]) -> bool:
    """Whether comparing all queries with this number of rows takes more products than an exact search should."""
    factor = GPU_FACTOR if queries.device.type == "cuda" else 1
    return len(queries) * queries.shape[1] * count > MAX_EXACT_PRODUCTS * factor


def by_inverted_file(queries: Float[Tensor, "N D"], rows: Float[Tensor, "M D"], k: int, seed: int) -> Neighbours | None:
    """Return k near rows of every query from the cells that are nearest to it; None without faiss, with a warning."""
    try:
        import faiss
    except ImportError:
        warnings.warn(
            f"likewise: {len(queries)} x {len(rows)} similarities are computed one by one, because faiss is not installed; "
            'pip install "likewise[faiss]" makes this several times faster',
            stacklevel=3,
        )
        return None
    x = rows.cpu().numpy()
    cells = max(1, round(CELLS_PER_ROOT * len(x) ** 0.5))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(x.shape[1]), x.shape[1], cells)
    index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = 1 + seed, TRAINING_STEPS, TRAINING_ROWS_PER_CELL
    index.cp.min_points_per_centroid = 1
    index.train(x)
    index.add(x)
    index.nprobe = min(PROBED_CELLS, cells)
    square, place = (torch.as_tensor(one).to(rows.device) for one in index.search(queries.cpu().numpy(), k))
    missing = place < 0  # fewer than k rows in the cells
    return Neighbours(place.masked_fill(missing, 0), square.masked_fill(missing, torch.inf).clamp_min(0).sqrt())


def _exact_neighbours(z: Float[Tensor, "N D"], rows: Int[Tensor, "n"], k: int) -> Neighbours:
    """Return the k nearest other rows of some rows of unit vectors."""
    row, distance = [], []
    for some in rows.split(max(1, SIMILARITY_BLOCK_SIZE // len(z))):
        similarity = z[some] @ z.T
        similarity[torch.arange(len(some), device=z.device), some] = -torch.inf
        top = similarity.topk(k, 1)
        row.append(top.indices)
        distance.append((2 - 2 * top.values).clamp_min(0).sqrt())
    return Neighbours(torch.cat(row), torch.cat(distance))
