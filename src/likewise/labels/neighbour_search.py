"""Nearest rows of many queries: exact by blocked products while that is cheap, otherwise by an inverted file of faiss."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.block_executors import is_distributed, map_blocks
from likewise.core.errors import pip_install
from likewise.core.retrieval.integer_scores import row_slices

SIMILARITY_BLOCK_SIZE = 2**25
"""Maximum number of similarities, or of votes with probabilities, that are computed at a time."""

MAX_EXACT_PRODUCTS = 2**38
"""Maximum number of products (queries x rows x dimensions) with which a search is exact on a CPU: some seconds."""

GPU_FACTOR = 64
"""How many times as many products a GPU computes exactly."""

CELLS_PER_ROOT, MAX_CELLS_PER_ROOT, MAX_CELL_ROWS = 4.0, 16.0, 100
"""Cells of the inverted file per square root of the number of rows, at least and at most, and between them the rows of a cell.

Of a million rows, 4,000 cells are too coarse for classes of ten samples, and 10,000 are not. More than 16 per root would take
longer to fit than the search takes."""

PROBED_CELLS = 32
"""Number of cells that a query looks in, unless a recall is wanted that needs more."""

MIN_CHOSEN_ROWS, MAX_SCANNED_PRODUCTS = 2**16, 2**41
"""Number of rows from which the number of probed cells is chosen by the recall, and the largest number of products (queries x
rows of the probed cells x dimensions) of the choice."""

TRAINING_ROWS_PER_CELL, TRAINING_STEPS = 40, 8
"""Number of rows per cell that the cells are fitted to, and of steps of k-means."""

SEARCH_BLOCK_ROWS = 2**16
"""Number of queries that an inverted file is searched with at a time."""

RECALL_QUERIES_COUNT = 256
"""Number of random queries whose exact nearest rows choose the probed cells, and measure the recall of an approximate search."""


class Neighbours(NamedTuple):
    """The nearest rows of every query with their Euclidean distances, the nearest first, and the measured recall."""

    row: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]
    recall: float = 1.0  # share of the exact nearest rows that were found; 1: the search was exact


def nearest_neighbours(z: Float[Tensor, "N D"], k: int, seed: int = 0, recall: float = 0.0) -> Neighbours:
    """Return the k nearest other rows of every row of unit vectors.

    The search is exact up to `MAX_EXACT_PRODUCTS`, N x N x D, and above it if faiss is not installed. Otherwise a query looks in
    `PROBED_CELLS` cells of an inverted file, or in more if the recall needs it. Similarities are plain float32 products:
    `retrieval.ranking`, which is exact to the last digit, is slower and not needed here.

    Args:
        seed: of the cells of an approximate search, and of the rows that measure its recall.
        recall: share of the exact nearest rows that an approximate search should find. From `MIN_CHOSEN_ROWS` rows on, the number
            of probed cells is doubled until a sample of the rows reaches it, within `MAX_SCANNED_PRODUCTS`.
    """
    k = min(k, len(z) - 1)
    rows = torch.arange(len(z), device=z.device)
    if not is_large(len(z), z) or (index := inverted_file(len(z), z, seed)) is None:
        return _exact_neighbours(z, rows, k)
    drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:RECALL_QUERIES_COUNT].to(z.device)
    index.nprobe, reached = choose_probes(index, z, drawn, _exact_neighbours(z, drawn, k).row, recall)
    found = by_inverted_file(index, z, k + 1)
    own = (found.row == rows[:, None]) & found.distance.isfinite()
    own[~own.any(1), -1] = True  # of exact copies, more than k may come before the row itself
    return Neighbours(found.row[~own].view(-1, k), found.distance[~own].view(-1, k), reached)


def choose_probes(
    index: Any, z: Float[Tensor, "N D"], drawn: Int[Tensor, "n"], exact: Int[Tensor, "n k"], wanted: float
) -> tuple[int, float]:
    """Return how many cells a query looks in, and the share of the exact nearest rows that it then finds.

    Args:
        index: inverted file of z.
        drawn: rows that are searched to measure the recall.
        exact: their exact nearest other rows.
        wanted: recall from which the number of cells is not doubled.
    """
    probes = min(PROBED_CELLS, index.nlist)
    scanned = len(z) * len(z) * z.shape[1] / index.nlist  # products of one probed cell per query
    while True:
        index.nprobe = probes
        found = torch.from_numpy(index.search(z[drawn].cpu().numpy(), exact.shape[1] + 1)[1])
        recall = float((exact.cpu()[:, :, None] == found[:, None, :]).any(2).float().mean())
        more = min(2 * probes, index.nlist)
        enough = recall >= wanted or len(z) < MIN_CHOSEN_ROWS
        if enough or more == probes or more * scanned > MAX_SCANNED_PRODUCTS:
            return probes, recall
        probes = more


def nearest_centres(z: Float[Tensor, "N D"], centre: Float[Tensor, "C D"], k: int, seed: int = 0) -> Int[Tensor, "N k"]:
    """Return the k nearest centres of every row by Euclidean distance, exact or approximate as in `nearest_neighbours`."""
    k = min(k, len(centre))
    if is_large(len(centre), z) and (index := inverted_file(len(z), centre, seed)) is not None:
        index.nprobe = min(PROBED_CELLS, index.nlist)
        return by_inverted_file(index, z, k).row
    blocks = torch.arange(len(z), device=z.device).split(max(1, SIMILARITY_BLOCK_SIZE // len(centre)))
    return torch.cat(list(map_blocks(_centres_of_block, {"z": z, "centre": centre, "k": k}, blocks)))


def _centres_of_block(shared: Mapping[str, Any], rows: Int[Tensor, "n"]) -> Int[Tensor, "n k"]:
    """Return the nearest centres of some rows."""
    centre = shared["centre"]
    return torch.addmm(-0.5 * centre.square().sum(1), shared["z"][rows], centre.T).topk(shared["k"], 1).indices


def is_large(count: int, queries: Float[Tensor, "N D"]) -> bool:
    """Whether comparing all queries with this number of rows takes more products than an exact search should."""
    factor = GPU_FACTOR if queries.device.type == "cuda" else 1
    return len(queries) * queries.shape[1] * count > MAX_EXACT_PRODUCTS * factor


def inverted_file(queries: int, rows: Float[Tensor, "M D"], seed: int) -> Any | None:
    """Return an index of faiss that holds rows by the nearest of some centres; None without faiss, with a warning."""
    try:
        import faiss
    except ImportError:
        warnings.warn(
            f"likewise: {queries} x {len(rows)} similarities are computed one by one, because faiss is not installed; "
            f"{pip_install('likewise[faiss]')} makes this several times faster",
            stacklevel=3,
        )
        return None
    x = rows.cpu().numpy()
    root = len(x) ** 0.5
    cells = max(1, round(root * min(max(root / MAX_CELL_ROWS, CELLS_PER_ROOT), MAX_CELLS_PER_ROOT)))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(x.shape[1]), x.shape[1], cells)
    index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = 1 + seed, TRAINING_STEPS, TRAINING_ROWS_PER_CELL
    index.cp.min_points_per_centroid = 1
    index.train(x)
    index.add(x)
    return index


def by_inverted_file(index: Any, queries: Float[Tensor, "N D"], k: int) -> Neighbours:
    """Return k near rows of every query from the `nprobe` cells that are nearest to it."""
    shared = {"index": index, "queries": queries, "k": k, "probes": index.nprobe}
    if is_distributed():
        import faiss

        stored = {"index": faiss.serialize_index(index), "token": uuid4().hex}
        shared |= stored | {"threads": faiss.omp_get_max_threads()}
    found = list(map_blocks(_search_block, shared, row_slices(len(queries), SEARCH_BLOCK_ROWS)))
    square, place = (torch.cat(parts).to(queries.device) for parts in zip(*found, strict=True))
    missing = place < 0  # fewer than k rows in the cells
    return Neighbours(place.masked_fill(missing, 0), square.masked_fill(missing, torch.inf).clamp_min(0).sqrt())


def _search_block(shared: Mapping[str, Any], rows: slice) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Return squared distances and places of the rows that an inverted file finds for some queries."""
    index = _opened_index(shared) if "token" in shared else shared["index"]
    index.nprobe = shared["probes"]
    square, place = index.search(shared["queries"][rows].cpu().numpy(), shared["k"])
    return torch.from_numpy(square), torch.from_numpy(place)


_OPENED: dict[str, Any] = {}
"""The inverted file that this process of a cluster searches, by its token: opening it for every block would copy it."""


def _opened_index(shared: Mapping[str, Any]) -> Any:
    """Return the inverted file in a process of a cluster, which searches with as many threads as the process of the command."""
    import faiss

    token = shared["token"]
    if token not in _OPENED:
        faiss.omp_set_num_threads(shared["threads"])
        _OPENED.clear()
        _OPENED[token] = faiss.deserialize_index(shared["index"])
    return _OPENED[token]


def _exact_neighbours(z: Float[Tensor, "N D"], rows: Int[Tensor, "n"], k: int) -> Neighbours:
    """Return the k nearest other rows of some rows of unit vectors."""
    blocks = rows.split(max(1, SIMILARITY_BLOCK_SIZE // len(z)))
    row, distance = zip(*map_blocks(_neighbours_of_block, {"z": z, "k": k}, blocks), strict=True)
    return Neighbours(torch.cat(row), torch.cat(distance))


def _neighbours_of_block(
    shared: Mapping[str, Any], some: Int[Tensor, "n"]
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Return the nearest other rows of some rows, and their distances."""
    z = shared["z"]
    similarity = z[some] @ z.T
    similarity[torch.arange(len(some), device=z.device), some] = -torch.inf
    top = similarity.topk(shared["k"], 1)
    return top.indices, (2 - 2 * top.values).clamp_min(0).sqrt()
