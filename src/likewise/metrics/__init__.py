"""Metrics. Per query, from one ranked pass: `metric("R@10")`. Of a whole set of embeddings: `measure_set(["rho", "NMI"], z, y)`.

A family of the second kind is a module with `NAMES`, `knows(name)` and `measure(names, z, y)`, which shares work among names.
"""

import math
from collections.abc import Iterable

from jaxtyping import Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.metrics import clustering, spectrum, verification
from likewise.metrics.ranking import NAMES, metric
from likewise.metrics.spectrum import class_spectrum, density, spectral_decay

__all__ = [
    "NAMES", "SET_NAMES", "as_text", "class_spectrum", "density", "measure_set", "metric", "of_the_set", "spectral_decay",
]  # fmt: skip

FAMILIES = (spectrum, clustering, verification)
SET_NAMES: dict[str, str] = {name: line for family in FAMILIES for name, line in family.NAMES.items()}


def of_the_set(name: str) -> bool:
    """Whether this names a metric of the whole set, not one per query."""
    return any(family.knows(name) for family in FAMILIES)


def measure_set(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """These metrics of a whole set, in this order; NaN where one is not defined. They scale every embedding to unit length.

    So the numbers of a loss on raw embeddings can be compared with those of all others.
    """
    names = list(names)
    _must_know(names)
    value: dict[str, float] = {}
    for family in FAMILIES:
        own = [name for name in names if family.knows(name)]
        value |= family.measure(own, z, y) if own else {}
    return {name: value[name] for name in names}


def as_text(name: str, value: float) -> str:
    """How a value is shown: shares in percent, numbers of other kinds (decay, density, thresholds) plainly."""
    if math.isnan(value):
        return "nan"
    return f"{value:.4f}" if spectrum.knows(name) or name.startswith("threshold") else f"{100 * value:.1f} %"


def _must_know(names: Iterable[str]) -> None:
    for name in names:
        if not of_the_set(name):
            raise LikewiseError(
                f"metrics: no metric of the whole set is called '{name}'; there are {', '.join(SET_NAMES)}"
            )
