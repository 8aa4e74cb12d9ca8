"""Count the relevant and the possible gallery rows of queries, from the protocol and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.core.contracts import Protocol
from likewise.core.retrieval.integer_scores import Exclusions
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES, pair_groups
from likewise.core.retrieval.relevant_rows import GradedRows, count_relevant
from likewise.core.types import Items, LikewiseError
from likewise.score.relevance import RelevanceOfRows, relevance_of

MAX_STORED_RESULTS = 10
"""Results stored for each query, for figures and tables."""


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


def all_relevant_note(
    owner: str,
    items: Items,
    protocol: Protocol,
    rows: Int[np.ndarray, "n"],
    relevance: RelevanceOfRows | None,
    metrics: Sequence[str],
) -> str:
    """Return a sentence about the metrics that cannot be wrong because every result is relevant; "" if there are none.

    Raises if all metrics are such. Metrics of values decide nothing either if all values are equal.
    """
    from likewise.score.levels import needs_tree
    from likewise.score.metrics import is_graded, is_set_metric, needs_triplets

    counted = [name for name in metrics if not (is_set_metric(name) or needs_triplets([name]) or needs_tree([name]))]
    if relevance is None or not counted:
        return ""
    if relevance.has_pairs:
        graded, alone = graded_rows(items, protocol, rows, relevance)
        low, high = graded.limits(alone)
        sure = low >= relevance.threshold
        counted = counted if low == high else [name for name in counted if not is_graded(name)]
    else:
        sure = len(np.unique(items.y[rows])) == 1
    if not sure or not counted:
        return ""
    if len(counted) == len([name for name in metrics if not is_set_metric(name)]):
        raise LikewiseError(
            f"{owner}: a query must have irrelevant gallery rows, but all of them are relevant by {relevance.facts['spec']} "
            f"({relevance.facts['relevant']}), so every result would be right; use other labels, another relevance or threshold"
            + (", or --no-evaluate" if owner == "train" else "")
        )
    return f"every gallery row is relevant to every query, so any embedding has the same {', '.join(counted)}"


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
