"""Scores under the true labels when the noise is known: every label is replaced by signed weights of the true classes.

If T[c, g] = P(given g | true c) and labels become wrong independently of each other and of the features, row g of the inverse of
T has the expected value "1 for the true class, 0 for the others". A metric is a sum of products of such weights of different
samples, so its expected value is the metric under the true labels: query and gallery labels are corrected together, without any
features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError

INVERTED_BLOCK_SIZE = 2**22
"""Maximum number of weights of neighbours that are held at a time."""

MAX_INVERSE_WEIGHT = 20.0
"""Largest weight of an inverse that is used: above it, the given labels have next to no information about the true ones."""


class Inverted(NamedTuple):
    """A score under the true labels, and its standard error for the randomness of the noise."""

    value: float
    error: float


def inverse_transition(transition: Float[np.ndarray, "C C"]) -> Float[np.ndarray, "C C"]:
    """Return the signed weights of the true classes (columns) for every given label (rows)."""
    try:
        inverse = np.linalg.inv(transition)
    except np.linalg.LinAlgError:
        inverse = np.full_like(transition, np.inf)
    largest = np.abs(inverse).max()
    if not largest <= MAX_INVERSE_WEIGHT:
        raise LikewiseError(
            "evaluate: the noise must leave most labels of a class right, so that true scores can be computed, got noise whose "
            f"correction weighs a label by {largest:.3g} (at most {MAX_INVERSE_WEIGHT:g}); use a smaller share, or a reviewed "
            "subset (--correct-test-labels review.csv)"
        )
    return inverse


def invertible(name: str) -> bool:
    """Return whether a metric can be computed from signed weights."""
    return _term(name) is not None


def invert_scores(
    inverse: Float[np.ndarray, "C C"], y: Int[Tensor, "N"], query: Int[Tensor, "Q"], row: Int[Tensor, "Q L"],
    in_gallery: Bool[Tensor, "N"], names: Sequence[str],
) -> dict[str, Inverted]:  # fmt: skip
    """Return the scores of some metrics under the true labels.

    Formula: score = sum over true classes c and queries q of w_q[c] m_c(w of the neighbours) / queries, m_c the metric as a
        polynomial; R of class c is the rounded sum of w[c] over the gallery, without the query.
        error^2 = sum over samples i of (w_i . g_i)^2 - sum over c of w_i[c] g_i[c]^2, g_i the gradient by w_i: its expected value
        is the sum of the variances by one label at a time, an upper bound of the variance (Efron and Stein 1981).

    Args:
        inverse: result of `inverse_transition`.
        y: given labels, 0 to C - 1.
        query: position of every query among the labels.
        row: positions of the neighbours of every query, the nearest first; -1: none.
        in_gallery: whether each sample is in the gallery.
    """
    weights = torch.as_tensor(inverse, dtype=torch.float64)
    terms = {name: _term(name) for name in names}
    total, scored = torch.zeros(len(names), dtype=torch.float64), 0.0
    dot, square = torch.zeros(2, len(names), len(y), dtype=torch.float64)
    depth = max((k for _, k in terms.values()), default=1)  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable]
    for column in weights.T:
        w = column[y].requires_grad_()
        size = int(w.detach()[in_gallery].sum().round())
        relevant = size - in_gallery[query].long()
        slope = torch.zeros(len(names), len(y), dtype=torch.float64)
        for some in torch.arange(len(query)).split(max(1, INVERTED_BLOCK_SIZE // row.shape[1])):
            some = some[relevant[some] > 0]
            if not len(some):
                continue
            near = row[some, : max(depth, size)]
            near_w, own = w[near.clamp_min(0)] * (near >= 0), w[query[some]]
            scored += float(own.detach().sum())
            for number, (measure, k) in enumerate(terms.values()):  # pyright: ignore[reportGeneralTypeIssues]
                value = (own * measure(near_w, relevant[some], k)).sum()
                slope[number] += torch.autograd.grad(value, w, retain_graph=True)[0]
                total[number] += value.detach()
        dot += w.detach() * slope
        square += w.detach() * slope.square()
    error = (dot.square() - square).sum(1).clamp_min(0).sqrt()
    if scored <= 0:
        raise LikewiseError("evaluate: no query has a relevant gallery row under the known noise; check its share")
    return {name: Inverted(float(total[i] / scored), float(error[i] / scored)) for i, name in enumerate(names)}


Measure = Callable[[Float[Tensor, "q L"], Int[Tensor, "q"], int], Float[Tensor, "q"]]
"""Metric of queries of one class: from the weights of the neighbours, the number R of relevant rows, and k."""


def _term(name: str) -> tuple[Measure, int] | None:
    """Return the polynomial of a metric and the k in its name (0: none)."""
    if found := re.fullmatch(r"([RP])@([1-9][0-9]*)", name):
        return {"R": _recall, "P": _precision}[found[1]], int(found[2])
    return {"RP": (_r_precision, 0), "MAP@R": (_map_at_r, 0)}.get(name)


def _recall(near: Tensor, relevant: Tensor, k: int) -> Tensor:
    return 1 - (1 - near[:, :k]).prod(1)


def _precision(near: Tensor, relevant: Tensor, k: int) -> Tensor:
    return near[:, :k].sum(1) / k


def _r_precision(near: Tensor, relevant: Tensor, k: int) -> Tensor:
    return (near * _until(near, relevant)).sum(1) / relevant


def _map_at_r(near: Tensor, relevant: Tensor, k: int) -> Tensor:
    place = torch.arange(1, near.shape[1] + 1)
    hits_before = near.cumsum(1) - near
    return (near * (1 + hits_before) / place * _until(near, relevant)).sum(1) / relevant


def _until(near: Tensor, relevant: Tensor) -> Tensor:
    return torch.arange(near.shape[1]) < relevant[:, None]
