"""Count the relevant and the possible gallery rows of queries, from the protocol and the labels."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.contracts import Protocol
from likewise.retrieval.integer_scores import Exclusions
from likewise.retrieval.ranking import count_relevant, pair_groups
from likewise.types import Items


def count_relevant_rows(items: Items, protocol: Protocol, rows: Int[np.ndarray, "n"]) -> Int[torch.Tensor, "Q"]:
    """Return the number of relevant gallery rows of each query: of its class, but not itself and not in `hidden_groups`."""
    is_query, in_gallery = protocol.query_gallery(items, rows)
    q, g = rows[is_query], rows[in_gallery]
    place = np.full(len(items), -1)
    place[g] = np.arange(len(g))
    group = hidden_groups(items)
    groups = () if group is None else pair_groups(group[q], group[g])
    alone = Exclusions(len(q), torch.as_tensor(place[q]), torch.zeros((0, 2), dtype=torch.int64), groups)
    return count_relevant(torch.as_tensor(items.y[q]), torch.as_tensor(items.y[g]), alone)


def hidden_groups(items: Items, other_cameras: bool = False) -> Int[torch.Tensor, "N kinds"] | None:
    """Return groups of rows that are not results of each other, as columns for `retrieval.ranking.rank`; None without columns.

    One column holds the `group` of a row. The other holds its class and camera: a query does not retrieve rows of its own class
    from its own camera, which would be nearly the same image, but it does retrieve rows of other classes from that camera
    (Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015).

    Args:
        other_cameras: a query retrieves no row at all from its own camera.
    """
    columns = [] if items.group is None else [items.group]
    if items.camera is not None:
        names, camera = np.unique(items.camera, return_inverse=True)
        number = camera if other_cameras else items.y.astype(np.int64) * len(names) + camera
        columns.append(np.where(items.camera == "", -1, number))
    return torch.as_tensor(np.stack(columns, 1)) if columns else None


def max_results(is_query: Bool[np.ndarray, "n"], in_gallery: Bool[np.ndarray, "n"]) -> int:
    """Return the number of results that a query can have at most: all gallery rows, without the query itself."""
    return int(in_gallery.sum()) - bool((is_query & in_gallery).sum() == is_query.sum())
