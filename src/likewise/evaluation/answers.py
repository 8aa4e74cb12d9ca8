"""The answers that queries can have and have to find, by the protocol and the labels alone."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.contracts import Protocol
from likewise.retrieval.integer_scores import Forbidden
from likewise.retrieval.ranking import count_relevant
from likewise.types import Items


def findable(items: Items, protocol: Protocol, rows: Int[np.ndarray, "n"]) -> Int[torch.Tensor, "Q"]:
    """Return how many answers each query among these rows has to find: of its class, not itself, not of its group."""
    asks, answers = protocol.query_gallery(items, rows)
    q, g = rows[asks], rows[answers]
    place = np.full(len(items), -1)
    place[g] = np.arange(len(g))
    groups = None
    if items.group is not None:
        groups = torch.as_tensor(items.group[q]), torch.as_tensor(items.group[g])
    alone = Forbidden(len(q), torch.as_tensor(place[q]), torch.zeros((0, 2), dtype=torch.int64), groups)
    return count_relevant(torch.as_tensor(items.y[q]), torch.as_tensor(items.y[g]), alone)


def answers_for(asks: Bool[np.ndarray, "n"], answers: Bool[np.ndarray, "n"]) -> int:
    """Return how many answers a query can have at most: no row is an answer to itself."""
    return int(answers.sum()) - bool((asks & answers).sum() == asks.sum())
