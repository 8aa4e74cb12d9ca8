"""Hyperbolic space, which has room for trees: distances and similarities for pair losses, in place of Euclid's and the cosine.

Unit embeddings lie on a sphere there, so their distance is a rising function of Euclid's. Whoever measures there pulls and pushes
otherwise, hardest where two are nearly one, but has the same neighbours in the same order: miners go on choosing by the cosine
(in its units, as the band of `SemiHard` or the `eps` of `HardPairs`), and evaluation ranks by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.similarity import MIN_SQUARED_DISTANCE, distance, length, squared_distance

DISTANCE_FACTOR = math.sinh(2) / 2
"""Half a distance is arsinh(DISTANCE_FACTOR * Euclid's) for unit embeddings."""

DISTANCE_UNIT = 2 * math.asinh(DISTANCE_FACTOR)
"""The distance at a cosine of 0.5, where Euclid's is 1: about 2.71."""


def neg_hyperbolic(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Minus the distance in the Poincare ball (curvature -1) of vectors brought there by the exponential map at 0.

    By the law of cosines, which needs no points near the rim: cosh d = 1 + 2 sinh^2(|a| - |b|) + sinh 2|a| sinh 2|b| (1 - cos).
    Unit embeddings lie on a sphere there, and are 0 to 4 apart. The slope is finite where two coincide.
    """
    n, m = length(a)[:, None], length(b)[None, :]
    above = 2 * (n - m).sinh().square() + (2 * n).sinh() * (2 * m).sinh() * (1 - a @ b.T / (n * m))
    above = above.clamp_min(MIN_SQUARED_DISTANCE)
    return -(above + above.sqrt() * (above + 2).sqrt()).log1p()


def hyperbolic_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The distance, 0 to 4, of unit vectors of this cosine: sinh(d / 2) = sinh(2) / 2 times Euclid's. The slope is finite."""
    return 2 * (DISTANCE_FACTOR * distance(sim)).asinh()


def hyperbolic_similarity(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 where two unit vectors of this cosine coincide, falling evenly with their distance, and 0.5 where the cosine is: margins
    and scales of losses are chosen around that."""
    return 1 - (DISTANCE_FACTOR * distance(sim)).asinh() / DISTANCE_UNIT


def hyperbolic_squared(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return hyperbolic_distance(sim).square()


def identity(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return sim


class Space(NamedTuple):
    """What a loss reads off the cosine of two unit embeddings."""

    similarity: Callable[[Tensor], Tensor]
    distance: Callable[[Tensor], Tensor]
    squared: Callable[[Tensor], Tensor]
    least: float  # the similarity of opposite embeddings, and how far apart they are
    furthest: float
    unit: float  # how long Euclid's 1 is there, for miners, whose bands are Euclid's


SPACES_BY_NAME = {
    "cosine": Space(identity, distance, squared_distance, least=-1.0, furthest=2.0, unit=1.0),
    "hyperbolic": Space(
        hyperbolic_similarity,
        hyperbolic_distance,
        hyperbolic_squared,
        least=1 - 2 / DISTANCE_UNIT,
        furthest=4.0,
        unit=DISTANCE_UNIT,
    ),
}
"""What the argument `space` of pair losses names."""


def check_space(space: str, owner: str) -> None:
    """For a loss's constructor: raise if there is no such space."""
    if space not in SPACES_BY_NAME:
        raise LikewiseError(f"{owner}: space must be {' or '.join(map(repr, SPACES_BY_NAME))}, got '{space}'")
