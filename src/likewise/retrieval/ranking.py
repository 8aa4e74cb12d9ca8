"""Exact nearest neighbours in bounded memory, the same rows on every device.

Ranking is by (similarity, row): equal similarities go to the lower row, on every device and for every chunk size.
`integer_scores` defines the scores, `candidates` makes the ranking fast.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.retrieval import integer_scores
from likewise.retrieval.candidates import top
from likewise.types import LikewiseError, Retrieval

BUDGET = 512 * 2**20
"""Bytes of working memory beyond the embeddings themselves."""

SIMILARITIES = ("cosine", "euclidean")


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
    group: Int[Tensor, "Q"] | None = None,
    gallery_group: Int[Tensor, "G"] | None = None,
    exclude: Int[Tensor, "M 2"] | None = None,
    similarity: str = "cosine",
    scale: float | None = None,
    budget: int = BUDGET,
    device: torch.device | str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, at least one deeper than there are answers to find.

    Args:
        z: queries. Without a gallery they are ranked among themselves, each without itself.
        k: how many answers to keep for show (`Retrieval.row`).
        depth: find the ranks of relevant answers at least down to this one.
        all_hits: find the ranks of all relevant answers, however deep.
        own: where each query itself stands in the gallery (-1: nowhere); that row is never an answer.
        group: rows of the same group (>= 0) are no answers either, and nobody misses them.
        exclude: pairs of a query and a gallery row that is no answer to it. Without a gallery it holds both ways.
        similarity: "cosine", or "euclidean" for raw embeddings.
        scale: of "euclidean", where these queries are only some of those that must be ranked alike: `euclidean_scale` of
            all of them and the gallery.
        budget: bytes of working memory beyond embeddings and result; smaller means smaller blocks, never other results.
        device: where to compute. By default where the queries are. Embeddings that a GPU has no room for come in blocks; on a
            CPU they may be a tensor over a memory map.
        progress: called with the share of the work that is done.
    """
    same = gallery_z is None
    if same:
        gallery_z, gallery_y, gallery_group = z, y, group
        own = torch.arange(len(z))
    _check(z, y, gallery_z, gallery_y, group, gallery_group, own, k, similarity)
    device = z.device if device is None else torch.device(device)
    assert gallery_y is not None  # _check has seen to it
    y, gallery_y = y.to(device).long(), gallery_y.to(device).long()
    rest = own, group, gallery_group, exclude
    own, group, gallery_group, exclude = (None if t is None else t.to(device).long() for t in rest)
    z = _bring(z, device)
    gallery_z = z if same else _bring(gallery_z, device)
    if similarity == "euclidean" and scale is None:
        scale = integer_scores.euclidean_scale(*([z] if same else [z, gallery_z]))
    queries = integer_scores.prepare(z, device, scale, "query", room=budget // 4)
    gallery = queries if same else integer_scores.prepare(gallery_z, device, scale, "gallery", room=budget // 4)
    pairs = _excluded(exclude, len(z), len(gallery_z), own, same, device)
    groups = None if group is None or gallery_group is None else (group, gallery_group)
    forbidden = integer_scores.Forbidden(len(z), own, pairs, groups)
    relevant = count_relevant(y, gallery_y, forbidden)
    n, report = len(gallery_z), progress or (lambda share: None)
    shown, wanted = min(k, n), min(max(k, depth), n)
    known = (relevant + 1).clamp(wanted, n)
    deep = known > max(wanted, n // 8)  # not worth proposing: `places` finds the ranks of their hits
    looked = known.where(~deep, wanted)

    buffer = _RankingBuffer(len(z), shown, device)
    for ids, row, key in top(queries, gallery, forbidden, looked, budget, same, report):
        buffer.put(ids, row, integer_scores.readable(key[:, :shown], queries, ids), gallery_y, y, looked)
    who, where, hit_rank = (torch.cat(part) for part in zip(*buffer.hits))
    buffer.hits.clear()
    hits = [who * (n + 1) + hit_rank]  # in one number, which sorts by both
    missing = (torch.bincount(who, minlength=len(z)) < relevant) & (deep | all_hits)
    if missing.any():
        hits += _missing_hits(queries, gallery, forbidden, y, gallery_y, missing, (who, where), budget)
    del who, where, hit_rank
    hits = torch.cat(hits).sort().values
    known = torch.full_like(known, n) if all_hits else known.where(~deep, n)
    count = torch.bincount(hits // (n + 1), minlength=len(z))
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    query = torch.arange(len(z), device=device)
    return Retrieval(query, buffer.row, buffer.match, buffer.sim, relevant, known, hits % (n + 1), start)


class _RankingBuffer:
    """Where chunks of a ranking come to lie: the answers for show, and every hit with its query, row and rank."""

    def __init__(self, queries: int, shown: int, device: torch.device):
        self.row = torch.full((queries, shown), -1, dtype=torch.int64, device=device)
        self.sim = torch.full((queries, shown), torch.nan, dtype=torch.float64, device=device)
        self.match = torch.zeros((queries, shown), dtype=torch.bool, device=device)
        self.hits: list[tuple[Tensor, Tensor, Tensor]] = []

    def put(self, ids: Tensor, row: Tensor, sim: Tensor, gallery_y: Tensor, y: Tensor, looked: Tensor) -> None:
        shown = self.row.shape[1]
        match = (gallery_y[row.clamp_min(0)] == y[ids][:, None]) & (row >= 0)
        self.row[ids], self.sim[ids], self.match[ids] = row[:, :shown], sim, match[:, :shown]
        place, at = match.nonzero(as_tuple=True)
        kept = at < looked[ids][place]
        place, at = place[kept], at[kept]
        self.hits.append((ids[place], row[place, at], at + 1))


def nearest(
    z: Float[Tensor, "Q D"],
    gallery_z: Float[Tensor, "G D"],
    k: int = 10,
    *,
    own: Int[Tensor, "Q"] | None = None,
    similarity: str = "cosine",
    budget: int = BUDGET,
) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
    """The k nearest gallery rows of every query and their similarities (Euclidean: minus the distance); no labels needed."""
    label = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    nobody = torch.ones(len(gallery_z), dtype=torch.int64, device=z.device)
    found = rank(z, label, gallery_z, nobody, k=k, own=own, similarity=similarity, budget=budget)
    return found.row, found.sim


def _check(z, y, gallery_z, gallery_y, group, gallery_group, own, k, similarity) -> None:
    if similarity not in SIMILARITIES:
        raise LikewiseError(f"search: similarity must be one of {', '.join(SIMILARITIES)}, got '{similarity}'")
    if z.dim() != 2 or gallery_z.dim() != 2 or z.shape[1] != gallery_z.shape[1]:
        raise LikewiseError(
            "search: queries and gallery must be tables with the same number of columns, "
            f"got {tuple(z.shape)} and {tuple(gallery_z.shape)}"
        )
    if gallery_y is None or (group is None) != (gallery_group is None):
        raise LikewiseError(
            "search: a gallery brings its labels, and its groups where the queries have theirs; give gallery_y, and both or "
            "neither of group and gallery_group"
        )
    if len(z) != len(y) or len(gallery_z) != len(gallery_y):
        raise LikewiseError(
            f"search: one label per embedding is wanted, got {len(z)} queries with {len(y)} labels "
            f"and a gallery of {len(gallery_z)} with {len(gallery_y)} labels"
        )
    if z.numel() == 0 or len(gallery_z) == 0:
        raise LikewiseError(f"search: nothing to rank, got {len(z)} queries and a gallery of {len(gallery_z)} rows")
    if k < 0 or (own is not None and (own.shape != y.shape or (own >= len(gallery_z)).any())):
        raise LikewiseError(
            f"search: k must be 0 or more and `own` a row of the gallery (below {len(gallery_z)}) for every query, got k={k}"
            + ("" if own is None or not len(own) else f" and own up to {int(own.max())} for {len(own)} queries")
        )


def _bring(z: Tensor, device: torch.device) -> Tensor:
    """Embeddings on the device, where they take less than half of what is free there; else where they are. No gradient."""
    z = z.detach()
    if z.device == device or device.type != "cuda":
        return z.to(device) if z.device.type != "cpu" else z
    return z.to(device) if 2 * z.numel() * z.element_size() < torch.cuda.mem_get_info(device)[0] else z


def _excluded(exclude, queries: int, gallery: int, own, same: bool, device) -> Int[Tensor, "M 2"]:
    """The pairs given, sorted, none of them twice and none a query with itself."""
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


def count_relevant(y, gallery_y, forbidden: integer_scores.Forbidden) -> Int[Tensor, "Q"]:
    """Gallery rows of the query's class, less those that are no answer to it."""
    labels = torch.cat([y, gallery_y]).unique()
    yq, yg = torch.searchsorted(labels, y), torch.searchsorted(labels, gallery_y)
    count = torch.bincount(yg, minlength=len(labels))[yq]
    query, row = _pairs(forbidden)
    mates = yq[query] == yg[row]
    if forbidden.groups is not None:
        group, gallery_group = forbidden.groups
        groups = torch.cat([group, gallery_group]).unique()
        pair_q = yq * len(groups) + torch.searchsorted(groups, group)
        pair_g = (yg * len(groups) + torch.searchsorted(groups, gallery_group))[gallery_group >= 0]
        pairs, size = pair_g.unique(return_counts=True)
        if len(pairs):
            at = torch.searchsorted(pairs, pair_q).clamp_max(len(pairs) - 1)
            count = count - torch.where((pairs[at] == pair_q) & (group >= 0), size[at], 0)
        mates &= (group[query] < 0) | (group[query] != gallery_group[row])  # those of the group are counted already
    return count - torch.bincount(query[mates], minlength=len(y))


def _pairs(forbidden: integer_scores.Forbidden) -> tuple[Int[Tensor, "M"], Int[Tensor, "M"]]:
    """Forbidden pairs, but for those by group."""
    if forbidden.own is None:
        return forbidden.query, forbidden.row
    at_home = (forbidden.own >= 0).nonzero()[:, 0]
    return torch.cat([at_home, forbidden.query]), torch.cat([forbidden.own[at_home], forbidden.row])


def _missing_hits(queries, gallery, forbidden, y, gallery_y, missing, seen, budget) -> list[Tensor]:
    """The relevant answers that are not among those seen, each as query * (gallery + 1) + rank."""
    order = gallery_y.argsort(stable=True)
    sorted_y, n = gallery_y[order], len(gallery)
    first, end = torch.searchsorted(sorted_y, y), torch.searchsorted(sorted_y, y, right=True)
    known = torch.cat([who * n + row for who, row in (seen, _pairs(forbidden))]).sort().values
    ids, out = missing.nonzero()[:, 0], []
    most = max(1, int((end - first)[ids].max()))
    for some in ids.split(max(1, budget // (most * 64))):
        count = (end - first)[some]
        who = some.repeat_interleave(count)
        offset = torch.arange(len(who), device=who.device) - (count.cumsum(0) - count).repeat_interleave(count)
        row = order[first[who] + offset]
        code = who * n + row
        at = torch.searchsorted(known, code).clamp_max(len(known) - 1)
        new = known[at] != code if len(known) else torch.ones_like(code, dtype=torch.bool)
        if forbidden.groups is not None:
            g = forbidden.groups[0][who]
            new &= (g < 0) | (g != forbidden.groups[1][row])
        who, row = who[new], row[new]
        out.append(who * (n + 1) + integer_scores.places(queries, gallery, forbidden, who, row, budget // 2))
    return out
