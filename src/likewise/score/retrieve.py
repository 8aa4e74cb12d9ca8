"""Queries and their gallery: which rows a query can retrieve, which of them are relevant (class or relevance), the ranking."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from likewise.core.block_executors import current_executor, is_distributed, map_blocks
from likewise.core.contracts import Protocol, Relevance
from likewise.core.distributed.process_group import joined_queries, rank_in_shares, world
from likewise.core.retrieval.integer_scores import Exclusions, euclidean_scale, row_slices
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES, pair_groups, rank
from likewise.core.retrieval.relevant_rows import ANY_RELEVANCE, GradedRows, RowRelevance, count_relevant
from likewise.core.settings.spec import build, canonical
from likewise.core.types import Embedded, Items, LikewiseError, QuerySample, Retrieval
from likewise.data.tabular import read_csv
from likewise.score.metrics import RankingDepth
from likewise.score.tree_levels import LevelPlan

CPU = torch.device("cpu")

MAX_STORED_RESULTS = 10
"""Results stored for each query, for figures and tables."""

MIN_BLOCK_QUERIES, BLOCKS_PER_WORKER = 256, 4
"""Smallest number of queries that a task of a cluster ranks, and number of tasks per slot."""


@dataclass(frozen=True, eq=False)
class Scoring:
    """How the embeddings of some rows are scored. It is made once for an evaluation.

    Attributes:
        items: the data of the rows.
        protocol: which rows are queries, and which are in the gallery.
        metrics: names of the metrics, per query and of the whole set.
        device: where to rank, and to compute metrics of the whole set.
        budget: working memory of the ranking, in bytes.
        exclude: pairs of rows of the data that are not results of each other.
        relevance: what is relevant. None: rows with a label of the query if samples have several labels, else those of its class.
        other_cameras: whether a query retrieves no row at all from its own camera, not only no row of its class.
        stored: number of results of each query in the ranking that is returned.
        review: .csv file of reviewed labels, from which corrected scores are estimated.
        say: receives messages for the user.
        sample: number of queries to draw at random (`query_sample.with_sample`); None: all are ranked.
        drawn: the queries that were drawn.
    """

    items: Items
    protocol: Protocol
    metrics: Sequence[str] = ()
    similarity: str = "cosine"
    device: torch.device = CPU
    quiet: bool = False
    budget: int = WORKING_MEMORY_BYTES
    exclude: Int[np.ndarray, "M 2"] | None = None
    relevance: RelevanceOfRows | None = None
    other_cameras: bool = False
    stored: int = MAX_STORED_RESULTS
    review: str | None = None
    say: Callable[[str], None] = print
    sample: int | None = None
    drawn: QuerySample | None = None

    @property
    def exact_device(self) -> torch.device:
        """The device, or the CPU if the device has no float64, which exact ranking needs, or if a cluster ranks."""
        return CPU if self.device.type == "mps" or is_distributed() else self.device

    def sides(self, e: Embedded) -> tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
        """Return which of the embeddings are queries (of the sample, if one was drawn), and which are in the gallery."""
        is_query, in_gallery = self.protocol.query_gallery(self.items, e.row.numpy())
        return is_query if self.drawn is None else is_query & self.drawn.chosen, in_gallery


def retrieve(
    e: Embedded,
    scoring: Scoring,
    wanted: RankingDepth = RankingDepth(1, False),
    *,
    levels: LevelPlan | None = None,
    relevance: RowRelevance | None = None,
    part: slice | None = None,
    progress: Callable[[float], None] | None = None,
) -> Retrieval:
    """Rank the gallery for every query, as the protocol defines them, without rows that the query's `hidden_groups` exclude.

    If several processes work together, each ranks a share of the queries.

    Args:
        wanted: number of results that the metrics need.
        levels: labels of a class tree; hits are then of the level `levels.ranked`, each with its gallery row.
        relevance: what is relevant in place of equal labels; both of its sides are the ids of all embeddings.
        part: rank only this part of the queries.
    """
    items, protocol = scoring.items, scoring.protocol
    is_query, in_gallery = map(torch.as_tensor, scoring.sides(e))
    if not is_query.any() or not in_gallery.any():
        raise LikewiseError(
            f"{type(protocol).__name__}: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
            f"got {int(is_query.sum())} and {int(in_gallery.sum())}; check the columns `query`, `gallery` and `split`"
        )
    y, shown = (e.y, 1) if levels is None else (levels.ranked_y, levels.shown)
    group = hidden_groups(items, scoring.other_cameras)
    group = None if group is None else group[e.row]
    how: dict[str, Any] = {
        "k": max(scoring.stored, shown), "depth": wanted.k, "all_hits": wanted.all_hits, "progress": progress,
        "similarity": scoring.similarity, "device": scoring.exact_device, "budget": scoring.budget,
    }  # fmt: skip
    pairs = None if scoring.exclude is None else _positions(scoring.exclude, e, items)
    distributed = is_distributed()
    if is_query.all() and in_gallery.all() and world()[1] == 1 and not distributed and part is None:
        how["relevance"] = relevance
        labels = None if levels is None else (levels.label, levels.label)
        return rank(e.z, y, group=group, exclude=pairs, levels=labels, **how)
    q, g = is_query.nonzero()[:, 0], in_gallery.nonzero()[:, 0]
    z, gallery_z = (e.z if side.all() else e.z[side] for side in (is_query, in_gallery))
    # The same scale in all processes and parts.
    how["scale"] = euclidean_scale(z, gallery_z) if scoring.similarity == "euclidean" else None
    q, z = (q, z) if part is None else (q[part], z[part])
    in_q, in_g = (torch.full((len(e.row),), -1).index_put_((at,), torch.arange(len(at))) for at in (q, g))
    if pairs is not None:
        pairs = torch.cat([pairs, pairs.flip(1)])
        pairs = torch.stack([in_q[pairs[:, 0]], in_g[pairs[:, 1]]], 1)
        pairs = pairs[(pairs >= 0).all(1)]
    sides = {
        "z": z, "gallery_z": gallery_z, "q": q, "g": g, "y": y, "own": in_g[q], "group": group, "pairs": pairs,
        "levels": None if levels is None else levels.label, "relevance": relevance, "how": how,
    }  # fmt: skip
    found = rank_in_blocks(len(q), sides) if distributed else rank_in_shares(len(q), partial(rank_block, sides))
    g = g.to(found.row.device)
    row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
    hit_row = None if found.hit_row is None else g[found.hit_row]
    return replace(found, query=q.to(g.device), row=row, hit_row=hit_row)


def rank_block(sides: Mapping[str, Any], mine: slice) -> Retrieval:
    """Rank the gallery for some of the queries, which count from 0 in the result. `sides`: both sides, as `retrieve` has them."""
    q, g, levels, group, pairs, relevance = (
        sides[name] for name in ("q", "g", "levels", "group", "pairs", "relevance")
    )
    q = q[mine]
    if pairs is not None:
        pairs = pairs[(pairs[:, 0] >= mine.start) & (pairs[:, 0] < mine.stop)] - torch.tensor([mine.start, 0])
    return rank(
        sides["z"][mine], sides["y"][q], sides["gallery_z"], sides["y"][g], own=sides["own"][mine],
        levels=None if levels is None else (levels[:, q], levels[:, g]),
        group=None if group is None else group[q], gallery_group=None if group is None else group[g], exclude=pairs,
        relevance=relevance and replace(relevance, query=relevance.query[q], gallery=relevance.gallery[g]), **sides["how"],
    )  # fmt: skip


def rank_in_blocks(queries: int, sides: Mapping[str, Any]) -> Retrieval:
    """Rank all queries in blocks, by the executor of the command. Ranking is exact: blocks do not change the result.

    A block has `MIN_BLOCK_QUERIES` queries or more, and every slot of the cluster gets `BLOCKS_PER_WORKER`, so that the cost of
    preparing the gallery, once per block, stays small beside that of ranking.
    """
    how = sides["how"] | {"progress": None}
    size = max(MIN_BLOCK_QUERIES, -(-queries // (BLOCKS_PER_WORKER * current_executor().slots)))
    blocks = row_slices(queries, size)
    return joined_queries(list(map_blocks(rank_block, {**sides, "how": how}, blocks, sides["how"]["progress"])))


def _positions(pairs: Int[np.ndarray, "M 2"], e: Embedded, items: Items) -> Int[torch.Tensor, "m 2"]:
    """Return pairs of rows of the data as positions among the embeddings, without pairs that have a row outside of them."""
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(items)):
        raise LikewiseError(
            f"evaluate: excluded pairs must name rows 0 to {len(items) - 1} of '{items.name}', got {pairs.min()} to {pairs.max()}"
        )
    place = torch.full((len(items),), -1)
    place[e.row] = torch.arange(len(e.row))
    found = place[torch.as_tensor(pairs)]
    return found[(found >= 0).all(1)]


def count_relevant_rows(
    items: Items, protocol: Protocol, rows: Int[np.ndarray, "n"], relevance: RelevanceOfRows | None = None
) -> Int[torch.Tensor, "Q"]:
    """Return the number of relevant gallery rows of each query, without itself and without rows in `hidden_groups`.

    Args:
        relevance: what is relevant to these rows. None: rows with a label of the query if samples have several labels, else those
            of its class.
    """
    relevance = relevance or relevance_of(items, rows)
    if relevance is not None and relevance.has_pairs:
        graded, alone = graded_rows(items, protocol, rows, relevance)
        return graded.survey(alone)[0]
    q, g = (rows[side] for side in protocol.query_gallery(items, rows))
    return count_relevant(torch.as_tensor(items.y[q]), torch.as_tensor(items.y[g]), exclusions_of(items, q, g))


def graded_rows(
    items: Items, protocol: Protocol, rows: Int[np.ndarray, "n"], relevance: RelevanceOfRows
) -> tuple[GradedRows, Exclusions]:
    """Return the relevance of the gallery rows to the queries, and the rows that are no results of a query."""
    is_query, in_gallery = protocol.query_gallery(items, rows)
    given = relevance.for_ranking(torch.device("cpu"), best=0, hit_values=False)
    given = replace(given, query=given.query[is_query], gallery=given.gallery[in_gallery])
    alone = exclusions_of(items, rows[is_query], rows[in_gallery])
    return GradedRows(given, torch.device("cpu"), WORKING_MEMORY_BYTES // 4), alone


def exclusions_of(
    items: Items, q: Int[np.ndarray, "Q"], g: Int[np.ndarray, "G"], pairs: Int[torch.Tensor, "M 2"] | None = None
) -> Exclusions:
    """Return the gallery rows `g` that are no results of the queries `q`: themselves, `hidden_groups`, and given pairs.

    Args:
        pairs: further excluded pairs (query number, gallery number), sorted by query.
    """
    place = np.full(len(items), -1)
    place[g] = np.arange(len(g))
    group = hidden_groups(items)
    groups = () if group is None else pair_groups(group[q], group[g])
    pairs = torch.zeros((0, 2), dtype=torch.int64) if pairs is None else pairs
    return Exclusions(len(q), torch.as_tensor(place[q]), pairs, groups)


def hidden_groups(items: Items, other_cameras: bool = False) -> Int[torch.Tensor, "N kinds"] | None:
    """Return groups of rows that are not results of each other, as columns for `retrieval.ranking.rank`; None without columns.

    One column holds the `group` of a row. The other holds its class and camera: a query does not retrieve rows of its own class
    from its own camera, which would be nearly the same image, but it does retrieve rows of other classes from that camera
    (Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015).

    Args:
        other_cameras: a query retrieves no row at all from its own camera.
    """
    if items.camera is not None and items.label_sets is not None:
        raise LikewiseError(
            "evaluate: the column `camera` hides rows of the query's own class and camera, but samples with several labels have "
            "no class of their own; drop the column, or use `group`"
        )
    columns = [] if items.group is None else [items.group]
    if items.camera is not None:
        names, camera = np.unique(items.camera, return_inverse=True)
        number = camera if other_cameras else items.y.astype(np.int64) * len(names) + camera
        columns.append(np.where(items.camera == "", -1, number))
    return torch.as_tensor(np.stack(columns, 1)) if columns else None


def max_results(is_query: Bool[np.ndarray, "n"], in_gallery: Bool[np.ndarray, "n"]) -> int:
    """Return the number of results that a query can have at most: all gallery rows, without the query itself."""
    return int(in_gallery.sum()) - bool((is_query & in_gallery).sum() == is_query.sum())


def read_pairs(file: str | None, items: Items) -> Int[np.ndarray, "M 2"] | None:
    """Return the pairs of rows in a .csv file with the columns row_a,row_b or path_a,path_b, or row,other as an audit writes."""
    if file is None:
        return None
    sheet = read_csv(file, "exclude")
    pairs = (("row_a", "row_b"), ("path_a", "path_b"), ("row", "other"))
    cells: list[list[Any]] = [[sheet.column.get(name) for name in pair] for pair in pairs]
    rows, paths, audited = (None if None in pair else pair for pair in cells)
    rows = audited if rows is None and paths is None else rows
    if (rows is None) == (paths is None):
        raise LikewiseError(
            f"exclude: {sheet.file} must have the columns row_a,row_b or path_a,path_b, got {', '.join(sheet.column)}; "
            "the duplicates.csv of an audit can be used directly"
        )
    if rows is not None:
        try:
            return np.asarray(rows, dtype=np.int64).T.reshape(-1, 2)
        except ValueError:
            raise LikewiseError(f"exclude: rows in {sheet.file} must be whole numbers, counted from 0") from None
    if items.path is None:
        raise LikewiseError(f"exclude: '{items.name}' has no paths; name pairs by row_a,row_b in {sheet.file}")
    place = {path: row for row, path in enumerate(items.path)}
    assert paths is not None
    unknown = [path for path in (*paths[0], *paths[1]) if path not in place]
    if unknown:
        raise LikewiseError(
            f"exclude: {len(unknown)} paths of {sheet.file} are not in '{items.name}' (first: {unknown[0]}); write them as "
            "in the data"
        )
    return np.asarray([[place[path] for path in side] for side in paths], dtype=np.int64).T.reshape(-1, 2)


LABELS_RELEVANCE = "SharedLabels"
"""The relevance of data with several labels per sample."""

MAX_TABLE_IDS = 4096
"""Number of ids in use up to which it is checked whether only rows of the same class are relevant."""


@dataclass(frozen=True, eq=False)
class RelevanceOfRows:
    """The relevance of N evaluated rows to each other, and the facts about it in scores.json."""

    source: Relevance
    threshold: float  # a row of this relevance or more is relevant; `ANY_RELEVANCE`: every row above 0
    ids: Int[Tensor, "N"]
    facts: dict

    @property
    def has_pairs(self) -> bool:
        """Whether pairs have a relevance; otherwise there are only judged triplets, and rows of the same class are relevant."""
        return "pairs" in self.source.gives

    def for_ranking(self, device: torch.device, *, best: int, hit_values: bool) -> RowRelevance:
        """Return the relevance as a ranking takes it, on a device.

        Args:
            best: number of highest values of every query to return.
            hit_values: list every row above 0 as a hit, with its value.
        """
        threshold = ANY_RELEVANCE if hit_values else self.threshold
        source = self.source.to(device)
        return RowRelevance(source, self.ids, self.ids, threshold, best, hit_values, self.source.row_bytes)


def relevance_of(
    items: Items,
    rows: Int[np.ndarray, "n"],
    spec: str | None = None,
    *,
    trained: bool = False,
    allow_imports: bool = False,
) -> RelevanceOfRows | None:
    """Return the relevance of some rows; None: rows of the same class are relevant.

    Args:
        spec: the relevance. None: shared labels if samples have several.
        trained: the spec is that of a training, whose threshold of shared labels separates positives from negatives; in
            evaluation every row with a label of the query is relevant.
    """
    if spec is None and items.label_sets is None:
        return None
    spec = spec or f"{LABELS_RELEVANCE}()"
    if LABELS_RELEVANCE in spec and items.label_sets is None:
        raise LikewiseError(
            f"evaluate: {LABELS_RELEVANCE} needs data with several labels per sample, and '{items.name}' has one; drop "
            "--relevance, or give a table with a column `labels`"
        )
    from likewise.runs.identity import contents_of
    from likewise.runs.network import sample_names

    facts = {"classes": items.classes, "labels": items.y[rows], "class_names": items.class_name}
    facts |= {"taxonomy": items.taxonomy, "sample_names": sample_names(items, rows), "label_sets": items.label_sets}
    facts["other_names"] = sample_names(items, np.setdiff1d(np.arange(len(items)), rows))  # of other splits
    source = build(spec, Relevance, allow_imports=allow_imports, **facts)
    shared = type(source).__name__ == LABELS_RELEVANCE
    threshold = ANY_RELEVANCE if shared and (trained or not _names_threshold(spec)) else source.threshold
    found = with_facts(source, threshold, items, rows, canonical(spec))
    return replace(found, facts=found.facts | {"files": read}) if (read := contents_of(spec)) else found


def relevance_of_run(
    trained: str | None, spec: str | None, items: Items, rows: Int[np.ndarray, "n"], allow_imports: bool
) -> RelevanceOfRows | None:
    """Return the relevance by which a run is scored on some rows.

    Args:
        trained: that of its training, which is used if the data has what it needs: several labels, or a class tree.
        spec: another one, if the user names it.
    """
    lacks_labels = trained is not None and trained.startswith(LABELS_RELEVANCE) and items.label_sets is None
    lacks_tree = trained is not None and trained.startswith("TreeDepth") and not (items.taxonomy or "tree='" in trained)
    own = None if lacks_labels or lacks_tree else trained
    return relevance_of(items, rows, spec or own, trained=spec is None, allow_imports=allow_imports)


def changed_files(found: RelevanceOfRows | None, trained: dict[str, str]) -> list[str]:
    """Return the files of a relevance with another content than in the training of a run.

    Args:
        trained: file -> SHA-256 of its content, at the training.
    """
    now = {} if found is None else found.facts.get("files", {})
    return [file for file, content in now.items() if trained.get(file, content) != content]


def with_facts(
    source: Relevance, threshold: float, items: Items, rows: Int[np.ndarray, "n"], spec: str
) -> RelevanceOfRows:
    """Return a relevance for some rows, with the facts of scores.json; raises if it has fewer ids than the rows need."""
    ids = torch.arange(len(rows)) if source.by == "sample" else torch.as_tensor(items.y[rows])
    if source.ids <= int(ids.max()):
        raise LikewiseError(
            f"evaluate: the relevance must know all {int(ids.max()) + 1} {'rows' if source.by == 'sample' else 'classes'} of "
            f"'{items.name}', but {type(source).__name__} knows {source.ids}; make it from the evaluated data"
        )
    every = threshold == ANY_RELEVANCE
    facts = {"spec": spec, "threshold": 0.0 if every else threshold, "relevant": f"relevance of {threshold:g} or more"}
    facts["units"] = "classes" if items.label_sets is None else "label sets"
    if every:
        facts["relevant"] = "any label shared" if items.label_sets is not None else "relevance above 0"
    if "pairs" not in source.gives or _is_same_class(source, threshold, ids):
        facts["relevant"] = "same class"
    return RelevanceOfRows(source, threshold, ids, facts)


def _is_same_class(source: Relevance, threshold: float, ids: Int[Tensor, "N"]) -> bool:
    """Return whether exactly the rows of the same class are relevant, among these ids."""
    used = ids.unique()
    if source.by != "class" or len(used) > MAX_TABLE_IDS:
        return False
    parts = [used[part] for part in row_slices(len(used), 2**20 // len(used))]
    others = [used[part] for part in row_slices(len(used), 2**24 // max(1, source.row_bytes))]
    return all(
        bool(((source(some, other) >= threshold) == (some[:, None] == other)).all())
        for some in parts
        for other in others
    )


def _names_threshold(spec: str) -> bool:
    """Return whether a spec writes a threshold down: "SharedLabels(threshold=0.5)"."""
    call = ast.parse(spec.strip(), mode="eval").body
    return isinstance(call, ast.Call) and any(word.arg == "threshold" for word in call.keywords)
