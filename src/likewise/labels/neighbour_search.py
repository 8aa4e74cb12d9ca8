"""Nearest rows of many queries: exact by blocked products while that is cheap, otherwise by codes of faiss."""

from __future__ import annotations

import importlib.util
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

MAX_EXACT_PRODUCTS, GPU_FACTOR = 2**41, 8
"""Maximum number of products (queries x rows x dimensions) with which a search is exact on a CPU: half a minute of two cores; and
how many times as many a GPU computes."""

MIN_FAISS_PRODUCTS = 2**38
"""Number of products from which, on a CPU, faiss computes an exact search of neighbours (twice as fast as PyTorch, with other
rounding), and nearest centres are found by codes: they only choose candidates, so they need not be exact."""

MAX_CODES = 128
"""Maximum number of codes of a row, of 4 bits each; up to 256 dimensions, a code stands for two of them."""

CODED_PER_RANK, MIN_CODED = 5, 128
"""Number of rows that the codes choose: this many per wanted row, and at least this many. Their exact distances are compared."""

MAX_ROWS_WITHOUT_CELLS, CELLS_PER_ROOT = 2**19, 8
"""Largest number of rows whose codes are all compared with a query. Above it, there are this many cells per square root of the
rows, and a query is compared with the codes of some cells."""

PROBED_CELLS = 256
"""Number of cells that a query looks in, unless a recall is wanted that needs more."""

TRAINING_ROWS_PER_CELL, TRAINING_STEPS = 40, 8
"""Number of rows per cell that the cells are fitted to, and of steps of k-means."""

SEARCH_BLOCK_ROWS = 2**14
"""Number of queries that faiss searches at a time."""

RECALL_QUERIES_COUNT = 256
"""Number of random queries whose exact nearest rows choose the probed cells, and measure the recall of an approximate search."""


class Neighbours(NamedTuple):
    """The nearest rows of every query with their Euclidean distances, the nearest first, and the measured recall."""

    row: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]
    recall: float = 1.0  # share of the exact nearest rows that were found; 1: the search was exact


def nearest_neighbours(z: Float[Tensor, "N D"], k: int, seed: int = 0, recall: float = 0.0) -> Neighbours:
    """Return the k nearest other rows of every row of unit vectors.

    The search is exact up to `MAX_EXACT_PRODUCTS`, N x N x D, and above it if faiss is not installed. Otherwise codes of 4 bits
    choose `CODED_PER_RANK` k rows, and the exact distances of these are compared. Similarities are plain float32 products:
    `retrieval.ranking`, which is exact to the last digit, is slower and not needed here.

    Args:
        seed: of the codes and cells of an approximate search, and of the rows that measure its recall.
        recall: share of the exact nearest rows that an approximate search should find. Above `MAX_ROWS_WITHOUT_CELLS` rows, the
            number of probed cells is doubled until a sample of the rows reaches it.
    """
    k = min(k, len(z) - 1)
    rows = torch.arange(len(z), device=z.device)
    if not is_large(len(z), z) or (index := code_index(len(z), z, seed)) is None:
        return _exact_neighbours(z, rows, k)
    drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:RECALL_QUERIES_COUNT].to(z.device)
    reached = choose_probes(index, z, drawn, _exact_neighbours(z, drawn, k).row, recall)
    found = by_codes(index, z, k + 1)
    return Neighbours(*without_own(rows, found.row, found.distance), reached)


def without_own(
    rows: Int[Tensor, "n"], near: Int[Tensor, "n K"], distance: Float[Tensor, "n K"]
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Return the nearest rows of some rows, and their distances, without the row itself."""
    own = (near == rows[:, None]) & distance.isfinite()
    own[~own.any(1), -1] = True  # of exact copies, more than k may come before the row itself
    return near[~own].view(len(rows), -1), distance[~own].view(len(rows), -1)


def choose_probes(
    index: Any, z: Float[Tensor, "N D"], drawn: Int[Tensor, "n"], exact: Int[Tensor, "n k"], wanted: float
) -> float:
    """Set how many cells a query looks in, and return the share of the exact nearest rows that it then finds.

    Args:
        index: of z, as `code_index` returns it.
        drawn: rows that are searched to measure the recall.
        exact: their exact nearest other rows.
        wanted: recall from which the number of cells is not doubled.
    """
    import faiss

    cells = faiss.try_extract_index_ivf(index)
    while True:
        found = search_codes(index, z[drawn], exact.shape[1] + 1)[1]
        recall = float((exact.cpu()[:, :, None] == found[:, None, :]).any(2).float().mean())
        if cells is None or recall >= wanted or cells.nprobe >= cells.nlist:
            return recall
        cells.nprobe = min(2 * cells.nprobe, cells.nlist)


def nearest_centres(z: Float[Tensor, "N D"], centre: Float[Tensor, "C D"], k: int, seed: int = 0) -> Int[Tensor, "N k"]:
    """Return the k nearest centres of every row by Euclidean distance: exact up to `MIN_FAISS_PRODUCTS`, above it by codes."""
    k = min(k, len(centre))
    if is_large(len(centre), z, MIN_FAISS_PRODUCTS) and (index := code_index(len(z), centre, seed)) is not None:
        return by_codes(index, z, k).row
    blocks = torch.arange(len(z), device=z.device).split(max(1, SIMILARITY_BLOCK_SIZE // len(centre)))
    return torch.cat(list(map_blocks(_centres_of_block, {"z": z, "centre": centre, "k": k}, blocks)))


def _centres_of_block(shared: Mapping[str, Any], rows: Int[Tensor, "n"]) -> Int[Tensor, "n k"]:
    """Return the nearest centres of some rows."""
    centre = shared["centre"]
    return torch.addmm(-0.5 * centre.square().sum(1), shared["z"][rows], centre.T).topk(shared["k"], 1).indices


def is_large(count: int, queries: Float[Tensor, "N D"], most: int | None = None) -> bool:
    """Whether comparing all queries with this number of rows takes more products than an exact search should.

    Args:
        most: largest number of products on a CPU; None: `MAX_EXACT_PRODUCTS`.
    """
    if queries.device.type == "cuda":
        most = MAX_EXACT_PRODUCTS * GPU_FACTOR
    return len(queries) * queries.shape[1] * count > (MAX_EXACT_PRODUCTS if most is None else most)


def uses_faiss(queries: int, rows: Float[Tensor, "N D"]) -> bool:
    """Whether faiss computes an exact search of these rows: on a CPU, if it is installed and the search is large."""
    if rows.device.type != "cpu" or queries * rows.numel() < MIN_FAISS_PRODUCTS:
        return False
    return importlib.util.find_spec("faiss") is not None


def code_index(queries: int, rows: Float[Tensor, "M D"], seed: int) -> Any | None:
    """Return an index of faiss with the rows and their codes of 4 bits; None if faiss is not installed, with a warning.

    A random rotation spreads the variance evenly over the dimensions: without it, many codes would stand for dimensions that
    hardly differ. Up to `MAX_ROWS_WITHOUT_CELLS` rows, a search of all codes is faster than one of cells with the same recall.

    Args:
        queries: number of queries, for the warning.
    """
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
    count, dim = x.shape
    codes = min(MAX_CODES, -(-dim // 2))
    coded_dim = codes * -(-dim // codes)
    rotation = faiss.RandomRotationMatrix(dim, coded_dim)
    rotation.init(1 + seed)
    if count <= MAX_ROWS_WITHOUT_CELLS:
        coded = faiss.IndexPQFastScan(coded_dim, codes, 4)
    else:
        cells = min(count, round(CELLS_PER_ROOT * count**0.5))
        coded = faiss.IndexIVFPQFastScan(faiss.IndexFlatL2(coded_dim), coded_dim, cells, codes, 4)
        coded.by_residual, coded.nprobe = False, min(PROBED_CELLS, cells)
        coded.cp.seed, coded.cp.niter, coded.cp.max_points_per_centroid = (
            1 + seed,
            TRAINING_STEPS,
            TRAINING_ROWS_PER_CELL,
        )
        coded.cp.min_points_per_centroid = 1
    coded.pq.cp.seed, coded.pq.cp.min_points_per_centroid = 1 + seed, 1
    index = faiss.IndexRefineFlat(faiss.IndexPreTransform(rotation, coded))
    index.train(x)
    index.add(x)
    return index


def by_codes(index: Any, queries: Float[Tensor, "N D"], k: int) -> Neighbours:
    """Return k near rows of every query by an index that `code_index` returned."""
    shared = {"index": index, "queries": queries, "k": k}
    if is_distributed():
        import faiss

        stored = {"index": faiss.serialize_index(index), "token": uuid4().hex}
        shared |= stored | {"threads": faiss.omp_get_max_threads()}
    found = list(map_blocks(_search_block, shared, row_slices(len(queries), SEARCH_BLOCK_ROWS)))
    square, place = (torch.cat(parts).to(queries.device) for parts in zip(*found, strict=True))
    missing = place < 0  # fewer than k rows in the cells
    return Neighbours(place.masked_fill(missing, 0), square.masked_fill(missing, torch.inf).clamp_min(0).sqrt())


def _search_block(shared: Mapping[str, Any], rows: slice) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Return the squared distances and the row numbers that an index finds for some queries."""
    index = _opened_index(shared) if "token" in shared else shared["index"]
    return search_codes(index, shared["queries"][rows], shared["k"])


def search_codes(index: Any, queries: Float[Tensor, "n D"], k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Return the squared distances and the row numbers of k near rows of every query; -1 where fewer were found."""
    index.k_factor = max(CODED_PER_RANK, MIN_CODED / k)
    square, place = index.search(queries.cpu().numpy(), k)
    return torch.from_numpy(square), torch.from_numpy(place)


_OPENED: dict[str, Any] = {}
"""The index that this process of a cluster searches, by its token: opening it for every block would copy it."""


def _opened_index(shared: Mapping[str, Any]) -> Any:
    """Return the index in a process of a cluster, which searches with as many threads as the process of the command."""
    import faiss

    token = shared["token"]
    if token not in _OPENED:
        faiss.omp_set_num_threads(shared["threads"])
        _OPENED.clear()
        _OPENED[token] = faiss.deserialize_index(shared["index"])
    return _OPENED[token]


def _exact_neighbours(z: Float[Tensor, "N D"], rows: Int[Tensor, "n"], k: int) -> Neighbours:
    """Return the k nearest other rows of some rows of unit vectors."""
    shared = {"z": z, "k": k, "faiss": uses_faiss(len(rows), z)}
    blocks = rows.split(SEARCH_BLOCK_ROWS if shared["faiss"] else max(1, SIMILARITY_BLOCK_SIZE // len(z)))
    row, distance = zip(*map_blocks(_neighbours_of_block, shared, blocks), strict=True)
    return Neighbours(torch.cat(row), torch.cat(distance))


def _neighbours_of_block(
    shared: Mapping[str, Any], some: Int[Tensor, "n"]
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Return the nearest other rows of some rows, and their distances."""
    z, k = shared["z"], shared["k"]
    if shared["faiss"]:
        import faiss

        found = faiss.knn(z[some].numpy(), z.numpy(), k + 1, metric=faiss.METRIC_INNER_PRODUCT)
        similarity, place = (torch.from_numpy(part) for part in found)
        return without_own(some, place, (2 - 2 * similarity).clamp_min(0).sqrt())
    similarity = z[some] @ z.T
    similarity[torch.arange(len(some), device=z.device), some] = -torch.inf
    top = similarity.topk(k, 1)
    return top.indices, (2 - 2 * top.values).clamp_min(0).sqrt()
