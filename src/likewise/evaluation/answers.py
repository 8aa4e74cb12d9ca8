"""Count the relevant and the possible gallery rows of queries, from the protocol and the labels."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.contracts import Protocol
from likewise.retrieval.integer_scores import Exclusions
from likewise.retrieval.ranking import count_relevant
from likewise.types import Items


def count_relevant_rows(items: Items, protocol: Protocol, rows: Int[np.ndarray, "n"]) -> Int[torch.Tensor, "Q"]:
    """Return the number of relevant gallery rows of each query: of its class, but not itself and not of its group."""
    is_query, in_gallery = protocol.query_gallery(items, rows)
    q, g = rows[is_query], rows[in_gallery]
    place = np.full(len(items), -1)
    place[g] = np.arange(len(g))
    groups = None
    if items.group is not None:
        groups = torch.as_tensor(items.group[q]), torch.as_tensor(items.group[g])
    alone = Exclusions(len(q), torch.as_tensor(place[q]), torch.zeros((0, 2), dtype=torch.int64), groups)
    return count_relevant(torch.as_tensor(items.y[q]), torch.as_tensor(items.y[g]), alone)


def max_results(is_query: Bool[np.ndarray, "n"], in_gallery: Bool[np.ndarray, "n"]) -> int:
    """Return the number of results that a query can have at most: all gallery rows, without the query itself."""
    return int(in_gallery.sum()) - bool((is_query & in_gallery).sum() == is_query.sum())
