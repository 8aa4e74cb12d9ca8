"""Queries by their place in a pool, with their first answers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.report.records import Answer, Asked


def ask(
    place: int, value: float, label: Int[np.ndarray, "N"], near: Int[np.ndarray, "N K"], sim: Float[np.ndarray, "N K"]
) -> Asked:
    """A query with its first answers."""
    each = zip(near[place].tolist(), sim[place].tolist())
    return Asked(place, value, tuple(Answer(p, s, bool(label[p] == label[place])) for p, s in each if p >= 0))


def asked_list(one: Asked) -> list:
    """A query as the page's code reads it: place, value, and place, similarity and correctness of every answer."""
    return [one.place, one.value, [[answer.place, answer.similarity, int(answer.right)] for answer in one.answers]]


def places_of(rows: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
    """Where rows of the data stand among all of a pool; -1: nowhere."""
    order = np.argsort(all_rows, kind="stable")
    at = np.searchsorted(all_rows, rows, sorter=order).clip(max=len(all_rows) - 1)
    return np.where(all_rows[order[at]] == rows, order[at], -1)
