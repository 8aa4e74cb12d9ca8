"""Hyperbolic distances and similarities for pair losses, in place of the Euclidean distance and the cosine.

Hyperbolic space can embed trees with low distortion. Unit embeddings lie on a sphere in it, so their hyperbolic distance is an
increasing function of the Euclidean one. It changes how strongly a loss pulls and pushes (most for pairs that nearly coincide),
but not the order of neighbours. Therefore miners use the cosine, and settings such as the band of `SemiHard` or the `eps` of
`HardPairs` keep its units; evaluation ranks by the cosine too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.similarity import MIN_SQUARED_DISTANCE, distance, length, squared_distance

SpaceName = Literal["cosine", "hyperbolic"]

DISTANCE_FACTOR = math.sinh(2) / 2
"""Half of the hyperbolic distance is arsinh(DISTANCE_FACTOR * Euclidean distance), for unit embeddings."""

DISTANCE_UNIT = 2 * math.asinh(DISTANCE_FACTOR)
"""Hyperbolic distance at a Euclidean distance of 1 (a cosine of 0.5): about 2.71."""


def neg_hyperbolic(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Return minus the distances in the Poincare ball (curvature -1), to which the exponential map at 0 takes the vectors.

    Computed by the law of cosines, which is stable near the boundary of the ball:
    cosh d = 1 + 2 sinh^2(|a| - |b|) + sinh 2|a| sinh 2|b| (1 - cos).
    Distances of unit embeddings are 0 to 4. The gradient is finite at distance 0.
    """
    n, m = length(a)[:, None], length(b)[None, :]
    above = 2 * (n - m).sinh().square() + (2 * n).sinh() * (2 * m).sinh() * (1 - a @ b.T / (n * m))
    above = above.clamp_min(MIN_SQUARED_DISTANCE)
    return -(above + above.sqrt() * (above + 2).sqrt()).log1p()


def hyperbolic_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the distance d, 0 to 4, of unit vectors with this cosine: sinh(d / 2) = sinh(2) / 2 times the Euclidean distance."""
    return 2 * (DISTANCE_FACTOR * distance(sim)).asinh()


def hyperbolic_similarity(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return a similarity that falls linearly with the distance of unit vectors: 1 at a cosine of 1, 0.5 at a cosine of 0.5.

    Margins and scales of losses are tuned for these two values.
    """
    return 1 - (DISTANCE_FACTOR * distance(sim)).asinh() / DISTANCE_UNIT


def hyperbolic_squared(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the squared distance of unit vectors with this cosine."""
    return hyperbolic_distance(sim).square()


def identity(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the cosine itself."""
    return sim


class Space(NamedTuple):
    """Functions from the cosine of two unit embeddings to their similarity and distance, with the ranges of the results."""

    similarity: Callable[[Tensor], Tensor]
    distance: Callable[[Tensor], Tensor]
    squared: Callable[[Tensor], Tensor]
    least: float  # smallest similarity, that of opposite embeddings
    furthest: float  # largest distance, that of opposite embeddings
    unit: float  # distance that corresponds to a Euclidean distance of 1; miners get margins divided by this


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
"""Values of the argument `space` of pair losses -> the space."""


def check_margins(owner: str, pull_margin: float, margin: float, furthest: float = math.inf) -> None:
    """Raise unless the margin of the pull is not above that of the push, and this one not above the largest distance."""
    if not pull_margin <= margin <= furthest:
        most = f" <= {furthest:g}, the largest distance of unit vectors" if math.isfinite(furthest) else ""
        raise LikewiseError(
            f"{owner}: pull_margin <= margin{most} must hold, got pull_margin={pull_margin}, margin={margin}"
        )
