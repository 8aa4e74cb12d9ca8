"""Exact nearest neighbours in bounded memory, the same rows on every device.

Gallery rows are ordered by descending similarity, equal similarities by row, on every device and for every chunk size.
`integer_scores` computes the exact scores; `candidates` avoids computing them for the whole gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.retrieval import integer_scores
from likewise.core.retrieval.candidates import error_of, top_rows
from likewise.core.retrieval.hit_counts import MAX_MEAN_HITS, HitCounter
from likewise.core.retrieval.relevant_rows import EqualLabels, GradedRows, RowRelevance, count_relevant
from likewise.core.types import LikewiseError, Retrieval

WORKING_MEMORY_BYTES = 512 * 2**20
"""Default bytes of working memory, without the embeddings."""

SIMILARITY_NAMES = ("cosine", "euclidean")


def rank(
    z: Float[Tensor, "Q D"],
    y: Int[Tensor, "Q"],
    gallery_z: Float[Tensor, "G D"] | None = None,
    gallery_y: Int[Tensor, "G"] | None = None,
    *,
    k: int = 10,
    depth: int = 0,
    all_hits: bool = False,
    own: Int[Tensor, "Q"] | None = None,
    group: Int[Tensor, "Q *kinds"] | None = None,
    gallery_group: Int[Tensor, "G *kinds"] | None = None,
    exclude: Int[Tensor, "M 2"] | None = None,
    similarity: str = "cosine",
    scale: float | None = None,
    levels: tuple[Int[Tensor, "L Q"], Int[Tensor, "L G"]] | None = None,
    relevance: RowRelevance | None = None,
    budget: int = WORKING_MEMORY_BYTES,
    device: torch.device | str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, at least to rank R + 1, where R is the number of relevant gallery rows.

    Args:
        z: queries. Without a gallery the queries are ranked against each other, each without itself.
        k: number of nearest gallery rows to return for each query (`Retrieval.row`).
        depth: return the ranks of relevant gallery rows at least down to this rank.
        all_hits: return the ranks of all relevant gallery rows.
        own: gallery row of each query itself (-1: not in the gallery); this row is excluded.
        group: gallery rows of the query's group (>= 0) are excluded and do not count as relevant. A matrix holds several kinds
            of groups, one in each column; a row that shares one of them is excluded.
        exclude: excluded pairs (query, gallery row). Without a gallery, a pair is excluded in both directions.
        similarity: "cosine", or "euclidean" for raw embeddings.
        scale: for "euclidean", when the queries are ranked in several calls: `euclidean_scale` of all queries and the gallery.
        levels: labels of queries and gallery rows on other levels of a class tree; -1 is equal to no label. The result then has
            `hit_row` and `relevant_at`.
        relevance: which gallery rows are relevant, in place of equal labels. The result then has `value`, `best` and `hit_value`.
        budget: bytes of working memory without embeddings and result. A smaller budget gives smaller blocks, the same result.
        device: where to compute; None: the device of the queries. Embeddings that do not fit into GPU memory are copied in
            blocks; on a CPU they may be a tensor over a memory map.
        progress: called with the share of the work that is done.
    """
    same = gallery_z is None
    if same:
        gallery_z, gallery_y, gallery_group = z, y, group
        own = torch.arange(len(z))
    _check(z, y, gallery_z, gallery_y, group, gallery_group, own, k, similarity)
    device = z.device if device is None else torch.device(device)
    assert gallery_y is not None  # checked by _check
    y, gallery_y = y.to(device).long(), gallery_y.to(device).long()
    rest = own, group, gallery_group, exclude
    own, group, gallery_group, exclude = (None if t is None else t.to(device).long() for t in rest)
    queries, gallery = _prepared(z, None if same else gallery_z, device, similarity, scale, budget // 4)
    pairs = _excluded(exclude, len(z), len(gallery_z), own, same, device)
    exclusions = integer_scores.Exclusions(len(z), own, pairs, pair_groups(group, gallery_group))
    source, relevant, best = _relevance(relevance, y, gallery_y, exclusions, budget)
    n, report = len(gallery_z), progress or (lambda share: None)
    shown, wanted = min(k, n), min(max(k, depth), n)
    known = (relevant + 1).clamp(wanted, n)
    deep = known > max(wanted, n // 8)  # too deep for candidates: `places` computes the ranks of their hits
    listed = known.where(~deep, wanted)  # number of gallery rows that `top_rows` returns for each query

    counter = _hit_counter(queries, gallery, exclusions, source, relevant, budget) if all_hits else None
    buffer = _RankingBuffer(len(z), shown, device, source)
    both_ways = same and exclusions.unknown is None  # unknown pairs need not be the same in both directions
    for ids, row, key in top_rows(queries, gallery, exclusions, listed, budget, both_ways, report, counter):
        buffer.put(ids, row, integer_scores.readable(key[:, :shown], queries, ids), listed)
    hits = [torch.cat(parts) for parts in zip(*buffer.hits)]
    buffer.hits.clear()
    missing = (torch.bincount(hits[0], minlength=len(z)) < relevant) & (deep | all_hits)
    if counter is not None:
        hits, missing = _with_counted(hits, missing, counter)
    more = _missing_hits(queries, gallery, exclusions, source, missing, hits[:2], budget)
    with_values = relevance is not None and relevance.hit_values
    hit_rank, hit_row, start = _in_order(chain([hits], more), len(z), n, levels is not None or with_values)
    known = torch.full_like(known, n) if all_hits else known.where(~deep, n)
    query = torch.arange(len(z), device=device)
    at = None if levels is None else _relevant_at(levels[0].to(device), levels[1].to(device), exclusions)
    found = Retrieval(query, buffer.row, buffer.match, buffer.sim, relevant, known, hit_rank, start, hit_row, at)
    return _with_values(found, source, buffer.value, best) if isinstance(source, GradedRows) else found


def _prepared(
    z: Tensor, gallery_z: Tensor | None, device: torch.device, similarity: str, scale: float | None, room: int
):
    """Return queries and gallery prepared for exact scores; without a gallery, the queries are the gallery."""
    z = _to_device(z, device)
    gallery_z = z if gallery_z is None else _to_device(gallery_z, device)
    same = gallery_z is z
    if similarity == "euclidean" and scale is None:
        scale = integer_scores.euclidean_scale(*([z] if same else [z, gallery_z]))
    queries = integer_scores.prepare(z, device, scale, "query", room=room)
    return queries, queries if same else integer_scores.prepare(gallery_z, device, scale, "gallery", room=room)


def _with_values(found: Retrieval, source: GradedRows, value: Tensor | None, best: Tensor | None) -> Retrieval:
    """Return the ranking with its graded relevances; those of the hits if they have their gallery rows."""
    if found.hit_row is None or not source.given.hit_values:
        return replace(found, value=value, best=best)
    query = found.query.repeat_interleave(found.start.diff())
    return replace(found, value=value, best=best, hit_value=source.at(query, found.hit_row))


def _relevance(given: RowRelevance | None, y, gallery_y, exclusions: integer_scores.Exclusions, budget: int):
    """Return which gallery rows are relevant, their number for every query, and the highest values of every query.

    Rows of unknown relevance are excluded from now on.
    """
    if given is None:
        source = EqualLabels(y, gallery_y)
        return source, source.count(exclusions), None
    source = GradedRows(given, y.device, budget // 4)
    relevant, best = source.survey(exclusions)
    exclusions.unknown = source.hide_unknown if source.unknown else None
    return source, relevant, best


def _in_order(hits: Iterable[Sequence[Tensor]], queries: int, n: int, with_rows: bool):
    """Return ranks, gallery rows (None without `with_rows`) and starts of the hits as in `Retrieval`.

    Args:
        hits: chunks of hits: query, gallery row, rank.
        n: size of the gallery.
    """
    codes, rows = zip(*((query * (n + 1) + rank, row if with_rows else None) for query, row, rank in hits))
    code, order = torch.cat(codes).sort()  # one integer sorts by query, then rank
    count = torch.bincount(code // (n + 1), minlength=queries)
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return code % (n + 1), torch.cat(rows)[order] if with_rows else None, start


class _RankingBuffer:
    """Collects the chunks of a ranking: the first `shown` gallery rows of every query, and every hit as (query, row, rank)."""

    def __init__(self, queries: int, shown: int, device: torch.device, source: EqualLabels | GradedRows):
        self.source = source
        self.value = torch.full((queries, shown), torch.nan, device=device) if isinstance(source, GradedRows) else None
        self.row = torch.full((queries, shown), -1, dtype=torch.int64, device=device)
        self.sim = torch.full((queries, shown), torch.nan, dtype=torch.float64, device=device)
        self.match = torch.zeros((queries, shown), dtype=torch.bool, device=device)
        self.hits: list[tuple[Tensor, Tensor, Tensor]] = []

    def put(self, ids: Tensor, row: Tensor, sim: Tensor, listed: Tensor) -> None:
        shown = self.row.shape[1]
        match, value = self.source.match(ids, row)
        if value is not None and self.value is not None:
            self.value[ids] = value[:, :shown]
        self.row[ids], self.sim[ids], self.match[ids] = row[:, :shown], sim, match[:, :shown]
        place, at = match.nonzero(as_tuple=True)
        kept = at < listed[ids][place]
        place, at = place[kept], at[kept]
        self.hits.append((ids[place], row[place, at], at + 1))


def nearest(
    z: Float[Tensor, "Q D"],
    gallery_z: Float[Tensor, "G D"],
    k: int = 10,
    *,
    own: Int[Tensor, "Q"] | None = None,
    group: Int[Tensor, "Q *kinds"] | None = None,
    gallery_group: Int[Tensor, "G *kinds"] | None = None,
    similarity: str = "cosine",
    budget: int = WORKING_MEMORY_BYTES,
    progress: Callable[[float], None] | None = None,
) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
    """Return the k nearest gallery rows of every query and their similarities (Euclidean: minus the distance), without labels."""
    label = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    other_label = torch.ones(len(gallery_z), dtype=torch.int64, device=z.device)  # no gallery row is relevant
    found = rank(
        z, label, gallery_z, other_label, k=k, own=own, group=group, gallery_group=gallery_group, similarity=similarity,
        budget=budget, progress=progress,
    )  # fmt: skip
    return found.row, found.sim


def _check(z, y, gallery_z, gallery_y, group, gallery_group, own, k, similarity) -> None:
    if similarity not in SIMILARITY_NAMES:
        raise LikewiseError(f"search: similarity must be one of {', '.join(SIMILARITY_NAMES)}, got '{similarity}'")
    if z.dim() != 2 or gallery_z.dim() != 2 or z.shape[1] != gallery_z.shape[1]:
        raise LikewiseError(
            "search: queries and gallery must be matrices with the same number of columns, "
            f"got {tuple(z.shape)} and {tuple(gallery_z.shape)}"
        )
    if gallery_y is None or (group is None) != (gallery_group is None):
        raise LikewiseError(
            "search: a gallery must have labels, and groups if the queries have groups; pass gallery_y, and both or neither of "
            "group and gallery_group"
        )
    if len(z) != len(y) or len(gallery_z) != len(gallery_y):
        raise LikewiseError(
            f"search: every embedding must have one label, got {len(z)} queries with {len(y)} labels "
            f"and a gallery of {len(gallery_z)} with {len(gallery_y)} labels"
        )
    if z.numel() == 0 or len(gallery_z) == 0:
        raise LikewiseError(f"search: nothing to rank, got {len(z)} queries and a gallery of {len(gallery_z)} rows")
    if k < 0 or (own is not None and (own.shape != y.shape or (own >= len(gallery_z)).any())):
        raise LikewiseError(
            f"search: k must be 0 or more, and `own` one gallery row below {len(gallery_z)} for every query, got k={k}"
            + ("" if own is None or not len(own) else f" and own up to {int(own.max())} for {len(own)} queries")
        )


def _to_device(z: Tensor, device: torch.device) -> Tensor:
    """Return detached embeddings, moved to the device if they take less than half of its free memory."""
    z = z.detach()
    if z.device == device or device.type != "cuda":
        return z.to(device) if z.device.type != "cpu" else z
    return z.to(device) if 2 * z.numel() * z.element_size() < torch.cuda.mem_get_info(device)[0] else z


def _excluded(exclude, queries: int, gallery: int, own, same: bool, device) -> Int[Tensor, "M 2"]:
    """Return the excluded pairs sorted and unique, without pairs of a query with its own row."""
    if exclude is None or not len(exclude):
        return torch.zeros((0, 2), dtype=torch.int64, device=device)
    low, (most, last) = int(exclude.min()), exclude.amax(0).tolist()
    if low < 0 or most >= queries or last >= gallery:
        raise LikewiseError(
            f"search: excluded pairs must name a query below {queries} and a gallery row below {gallery}, "
            f"got pairs from {low} up to ({most}, {last})"
        )
    exclude = (torch.cat([exclude, exclude.flip(1)]) if same else exclude).unique(dim=0)
    return exclude if own is None else exclude[own[exclude[:, 0]] != exclude[:, 1]]


def _relevant_at(label: Tensor, gallery_label: Tensor, exclusions: integer_scores.Exclusions) -> Int[Tensor, "Q L"]:
    """Return the number of relevant gallery rows of every query on every level; 0 where the query has no label."""
    each = [count_relevant(y, gallery_y, exclusions) for y, gallery_y in zip(label, gallery_label, strict=True)]
    return torch.stack(each, 1).where(label.T >= 0, 0)


def pair_groups(
    group: Int[Tensor, "Q *kinds"] | None, gallery_group: Int[Tensor, "G *kinds"] | None
) -> list[tuple[Int[Tensor, "Q"], Int[Tensor, "G"]]]:
    """Return the groups of queries and gallery rows as `Exclusions` takes them: a pair for every kind of group."""
    if group is None or gallery_group is None:
        return []
    sides = (side if side.dim() == 2 else side[:, None] for side in (group, gallery_group))
    return list(zip(*(side.T.contiguous() for side in sides), strict=True))


def _with_counted(hits: Sequence[Tensor], missing: Tensor, counter: HitCounter) -> tuple[Sequence[Tensor], Tensor]:
    """Return the hits (query, gallery row, rank) with those of the missing queries that were counted, and the queries left."""
    counted = missing & counter.counted
    kept = ~counted[hits[0]]
    hits = [torch.cat([part[kept], more]) for part, more in zip(hits, counter.hits(counted), strict=True)]
    return hits, missing & ~counted


def _missing_hits(queries, gallery, exclusions, source, missing, listed_hits, budget):
    """Yield chunks of (query, gallery row, rank): the relevant gallery rows outside `listed_hits`.

    Args:
        source: which gallery rows are relevant.
        missing: (Q,) mask of the queries to complete.
        listed_hits: (query, gallery row) of the hits that are already known.
    """
    for query, row in source.pairs(exclusions, missing, listed_hits, budget):
        yield query, row, integer_scores.places(queries, gallery, exclusions, query, row, budget // 2)


def _hit_counter(queries, gallery, exclusions, source, relevant, budget) -> HitCounter | None:
    """Return a counter of the rows before every hit; None if there are no hits, or too many for counting or for the memory."""
    total = int(relevant.sum())
    if not 0 < total <= min(MAX_MEAN_HITS * len(relevant), budget // 512):
        return None
    nothing = relevant.new_zeros(0)
    chunks = source.pairs(exclusions, relevant > 0, (nothing, nothing), budget)
    query, row = (torch.cat(parts) for parts in zip(*chunks))
    return HitCounter(queries, gallery, query, row, error_of(gallery), budget)
