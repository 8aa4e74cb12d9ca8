"""Metrics by name: per query from one ranked pass, or of a whole set of embeddings.

A new metric per query is a function in a file of this package and one line in `PER_QUERY`. A new family of metrics of the whole
set is a module with `NAMES`, `knows(name)` and `measure(names, z, y)`, and one entry in `FAMILIES`. A metric that stays in your
own code is a class under `QueryMetric` or `SetMetric`, named by its dotted name (`my_lab.metrics.Mine(k=5)`); see `admit`.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.contracts import Metric, QueryMetric, SetMetric
from likewise.errors import LikewiseError, nearest_name
from likewise.metrics import clustering, ranking, spectrum, verification
from likewise.metrics.spectrum import class_spectrum, density, spectral_decay

__all__ = [
    "NAMES", "SET_NAMES", "Reach", "admit", "as_text", "class_spectrum", "density", "measure_set", "metric", "of_the_set",
    "reach", "spectral_decay",
]  # fmt: skip


class PerQuery(NamedTuple):
    """A built-in metric per query: its function, the line that `likewise list metrics` shows, and what it reads of a ranking."""

    measure: Callable[..., Tensor]  # from a Retrieval; takes k too, if the name has @k
    about: str
    all_hits: bool = False  # whether it reads the ranks of all relevant answers, however deep


_AP, _WHO = ranking.average_precision, ranking.WHO_DIVIDES
PER_QUERY: dict[str, PerQuery] = {
    "R@k": PerQuery(ranking.recall_at, "1 if a relevant item is among the first k answers, else 0"),
    "P@k": PerQuery(ranking.precision_at, "share of relevant items among the first k answers"),
    "RP": PerQuery(ranking.r_precision,
        "share of relevant items among the first R answers, R = how many there are to find (R-precision)"),
    "MAP@R": PerQuery(partial(_AP, k="R"),
        "mean over the first R ranks of precision at that rank if it is a hit, else 0 (Musgrave et al. 2020)"),
    "MRR": PerQuery(ranking.reciprocal_rank, "1 / rank of the first relevant answer, however deep", all_hits=True),
    "MRR@k": PerQuery(ranking.reciprocal_rank, "1 / rank of the first relevant answer, 0 if it is deeper than k"),
    "NDCG@k": PerQuery(ranking.ndcg_at,
        "gain 1 / log2(rank + 1) of the relevant among the first k answers, as a share of a perfect ranking's"),
    "mAP": PerQuery(_AP,
        "average precision over all relevant items, however deep; scikit-learn's, but for ties", all_hits=True),
    "mAP/C": PerQuery(partial(_AP, over="C"),
        "the same divided by C = R + 1, the class with the query; always below 1 (Roth et al. 2020)", all_hits=True),
    "mAP@k/R": PerQuery(partial(_AP, over="R"),
        f"average precision over the first k answers, divided by R ({_WHO['R']})"),
    "mAP@k/min": PerQuery(partial(_AP, over="min"),
        f"average precision over the first k answers, divided by min(R, k) ({_WHO['min']})"),
    "mAP@k/hits": PerQuery(partial(_AP, over="hits"),
        f"average precision over the first k answers, divided by the hits among them ({_WHO['hits']})"),
    "mAP@k/C": PerQuery(partial(_AP, over="C"),
        f"average precision over the first k answers, divided by C = R + 1 ({_WHO['C']})"),
    "mAP@C": PerQuery(partial(_AP, k="C", over="C"),
        "average precision over the first C = R + 1 answers, divided by C; always below 1 (Roth et al. 2020)"),
    "mAP@C/R": PerQuery(partial(_AP, k="C"),
        "average precision over the first C = R + 1 answers, divided by R: mAP@C put right"),
}  # fmt: skip
"""Built-in metrics per query by generic name; k stands for a whole number."""

FAMILIES = (spectrum, clustering, verification)
NAMES: dict[str, str] = {name: entry.about for name, entry in PER_QUERY.items()}
SET_NAMES: dict[str, str] = {name: line for family in FAMILIES for name, line in family.NAMES.items()}

_OWN: dict[str, QueryMetric | SetMetric] = {}
"""Imported metrics by the text that names them. `admit` alone adds to it."""


class Reach(NamedTuple):
    """How deep rankings must go for some metrics."""

    k: int  # rank to which every ranking must go
    all_hits: bool  # whether the ranks of all relevant answers are needed, however deep


def admit(names: Iterable[str], allow_imports: bool) -> None:
    """Import the metrics among `names` that are given by dotted name, so that all functions of this module know them.

    A stage calls it before it uses names from its settings.

    Args:
        allow_imports: whether they may be imported, which runs their code. Without it a dotted name is an error.
    """
    for name in filter(_is_dotted, names):
        from likewise.config.spec import build

        part = build(name, allow_imports=allow_imports)
        if not isinstance(part, QueryMetric | SetMetric):
            raise LikewiseError(
                f"metrics: '{name}' must make a QueryMetric or a SetMetric, got a {type(part).__name__}; derive its class from "
                "one of these in likewise.contracts"
            )
        _OWN[name] = part


def metric(name: str) -> Metric:
    """The metric per query of this name."""
    if parsed := _parse(name):
        entry, k = parsed
        return entry.measure if k is None else partial(entry.measure, k=k)
    if isinstance(own := _OWN.get(name), QueryMetric):
        return own
    raise LikewiseError(_why_not(name))


def _why_not(name: str) -> str:
    """The error for a name that is no metric per query."""
    if bare := re.fullmatch(r"map@([1-9][0-9]*)", name, re.IGNORECASE):
        meanings = ", ".join(f"mAP@{bare[1]}/{over} ({who})" for over, who in ranking.WHO_DIVIDES.items())
        return f"metrics: '{name}' means several things; say what to divide by: {meanings}"
    if of_the_set(name):
        return (
            f"metrics: '{name}' is one number for a whole set, but a metric per query is wanted here; "
            f"take one of {', '.join(NAMES)} (k a number, as in R@1)"
        )
    if _is_dotted(name):
        return f"metrics: '{name}' must be imported first, which runs its code; say --allow-imports if you trust it"
    known = [*NAMES, *SET_NAMES]
    for letter, pattern, must in (
        ("@k", "@[-+.0-9]+", "k must be a whole number from 1 on, as in R@1"),
        ("=x", "=.*", "x must be a share from 0 to 1, as in TAR@FAR=0.001"),
    ):
        generic = re.sub(pattern, letter, name)
        if letter in generic and generic in known:
            return f"metrics: in {generic} {must}; got '{name}'"
    apart = "names stand apart, as in R@1 R@10; " if "," in name else ""
    return f"metrics: there is no '{name}'{nearest_name(name, known)} There are {', '.join(known)} ({apart}k a number, as in R@1)"


def knows(name: str) -> bool:
    """Whether this names a built-in metric per query."""
    return _parse(name) is not None


def reach(names: Iterable[str]) -> Reach:
    """How deep rankings must go for these metrics, if deeper than R + 1 as always. Other names ask for nothing."""
    names = list(names)
    parsed = [p for p in map(_parse, names) if p]
    own = [part for name in names if isinstance(part := _OWN.get(name), QueryMetric)]
    depths = [k for _, k in parsed if k] + [part.depth for part in own]
    return Reach(max(depths, default=1), any(e.all_hits for e, _ in parsed) or any(part.all_hits for part in own))


def of_the_set(name: str) -> bool:
    """Whether this names a metric of the whole set, not one per query. False for a dotted name that was not imported."""
    return isinstance(_OWN.get(name), SetMetric) or any(family.knows(name) for family in FAMILIES)


def measure_set(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """These metrics of a whole set, in this order; NaN where one is not defined. They scale every embedding to unit length.

    So the numbers of a loss on raw embeddings can be compared with those of all others.
    """
    names = list(names)
    for name in names:
        if not of_the_set(name):
            raise LikewiseError(
                f"metrics: no metric of the whole set is called '{name}'; there are {', '.join(SET_NAMES)}"
            )
    value: dict[str, float] = {}
    for family in FAMILIES:
        own = [name for name in names if family.knows(name)]
        value |= family.measure(own, z, y) if own else {}
    for name in names:
        if isinstance(part := _OWN.get(name), SetMetric):
            value[name] = float(part(F.normalize(z, dim=1), y))
    return {name: value[name] for name in names}


def as_text(name: str, value: float) -> str:
    """A value as text: shares in percent, numbers of other kinds (decay, density, thresholds) plainly.

    A dotted name need not be imported to be shown: a value from 0 to 1 is then taken for a share, as metrics per query are.
    """
    if math.isnan(value):
        return "nan"
    own = isinstance(_OWN.get(name), SetMetric) or (_is_dotted(name) and not 0 <= value <= 1)
    plain = own or spectrum.knows(name) or name.startswith("threshold")
    return f"{value:.4f}" if plain else f"{100 * value:.1f} %"


def _is_dotted(name: str) -> bool:
    """Whether this is written as a dotted name, with arguments or without: my_lab.metrics.Mine, my_lab.metrics.Mine(k=5)."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+\s*(\(.*\))?", name.strip(), re.DOTALL) is not None


def _parse(name: str) -> tuple[PerQuery, int | None] | None:
    """The built-in metric per query of this name, and its k: "R@10" -> (that of "R@k", 10). None: there is none."""
    found = re.fullmatch(r"(\w+@)([1-9][0-9]*)(/\w+)?", name)
    generic, k = (f"{found[1]}k{found[3] or ''}", int(found[2])) if found else (name, None)
    fits = generic in PER_QUERY and ("@k" in generic) == (k is not None)
    return (PER_QUERY[generic], k) if fits else None
