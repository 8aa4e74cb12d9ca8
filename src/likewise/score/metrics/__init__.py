"""Metrics by name: one value per query, all from one ranking, or one value for a whole set of embeddings.

A new metric per query is a function in a file of this package and one line in `PER_QUERY`. A new family of set metrics is a
module with `NAMES`, `knows(name)` and `measure(names, z, y)`, and one entry in `SET_METRIC_FAMILIES`. A metric in your code is
a subclass of `QueryMetric` or `SetMetric`, given by its dotted name (`my_lab.metrics.Mine(k=5)`); see `admit`.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Metric, QueryMetric, SetMetric
from likewise.core.errors import LikewiseError, nearest_name
from likewise.score.metrics import clustering, ranking, spectrum, verification
from likewise.score.metrics.spectrum import class_spectrum, density, spectral_decay

__all__ = [
    "NAMES", "SET_NAMES", "RankingDepth", "import_metrics", "as_text", "class_spectrum", "density", "last_rank", "level_of",
    "graded_depth", "is_graded", "is_label_free", "low_is_good", "measure_set", "metric", "needs_graded_hits", "needs_triplets",
    "is_set_metric", "is_tree_metric", "reach", "spectral_decay", "undefined_reason",
]  # fmt: skip


class PerQuery(NamedTuple):
    """A built-in metric per query: its function, its line in `likewise list metrics`, and the ranks that it needs."""

    measure: Callable[..., Tensor]  # Retrieval -> one value per query; has an argument k if the name has @k
    about: str
    all_hits: bool = False  # whether it needs the ranks of all relevant gallery rows
    in_tree: bool = False  # whether `measure` takes a TreeRetrieval
    low_is_good: bool = False
    graded: bool = False  # whether its values depend on graded relevance, not only on which rows are relevant


_AVERAGE_PRECISION, _DIVISOR_USERS = ranking.average_precision, ranking.DIVISOR_USERS
PER_QUERY: dict[str, PerQuery] = {
    "R@k": PerQuery(ranking.recall_at, "1 if a relevant item is among the first k results, else 0"),
    "P@k": PerQuery(ranking.precision_at, "share of relevant items among the first k results"),
    "RP": PerQuery(ranking.r_precision,
        "share of relevant items among the first R results, R = number of relevant items (R-precision)"),
    "MAP@R": PerQuery(partial(_AVERAGE_PRECISION, k="R"),
        "mean over the first R ranks of precision at that rank if it is a hit, else 0 (Musgrave et al. 2020)"),
    "MRR": PerQuery(ranking.reciprocal_rank, "1 / rank of the first relevant result, at any depth", all_hits=True),
    "MRR@k": PerQuery(ranking.reciprocal_rank, "1 / rank of the first relevant result, 0 if it is below rank k"),
    "NDCG@k": PerQuery(ranking.ndcg_at,
        "sum of relevance / log2(rank + 1) over the first k results, divided by that of a perfect ranking; also nDCG@k",
        graded=True),
    "graded-mAP": PerQuery(ranking.graded_average_precision,
        "average precision with graded relevance: pairs of results count by the smaller of their relevances "
        "(Robertson et al. 2010)", all_hits=True, graded=True),
    "triplet-agreement": PerQuery(ranking.agreement,
        "share of the judged triplets of the query in which the nearer sample is more similar"),
    "mAP": PerQuery(_AVERAGE_PRECISION,
        "average precision over all relevant items, at any depth; equal to scikit-learn's except for ties", all_hits=True),
    "mAP/C": PerQuery(partial(_AVERAGE_PRECISION, over="C"),
        "the same divided by C = R + 1, the class size with the query; always below 1 (Roth et al. 2020)", all_hits=True),
    "mAP@k/R": PerQuery(partial(_AVERAGE_PRECISION, over="R"),
        f"average precision over the first k results, divided by R ({_DIVISOR_USERS['R']})"),
    "mAP@k/min": PerQuery(partial(_AVERAGE_PRECISION, over="min"),
        f"average precision over the first k results, divided by min(R, k) ({_DIVISOR_USERS['min']})"),
    "mAP@k/hits": PerQuery(partial(_AVERAGE_PRECISION, over="hits"),
        f"average precision over the first k results, divided by the hits among them ({_DIVISOR_USERS['hits']})"),
    "mAP@k/C": PerQuery(partial(_AVERAGE_PRECISION, over="C"),
        f"average precision over the first k results, divided by C = R + 1 ({_DIVISOR_USERS['C']})"),
    "mAP@C": PerQuery(partial(_AVERAGE_PRECISION, k="C", over="C"),
        "average precision over the first C = R + 1 results, divided by C; always below 1 (Roth et al. 2020)"),
    "mAP@C/R": PerQuery(partial(_AVERAGE_PRECISION, k="C"),
        "average precision over the first C = R + 1 results, divided by R: mAP@C corrected"),
    "severity": PerQuery(ranking.severity,
        "height of the lowest common ancestor with a wrong first result, as a share of the class tree's height; low is good",
        in_tree=True, low_is_good=True),
    "tree-NDCG@k": PerQuery(ranking.tree_ndcg_at,
        "NDCG of the first k results; a result gains the depth of its lowest common ancestor with the query", in_tree=True),
}  # fmt: skip
"""Built-in metrics per query by generic name; k stands for a positive integer.

Metrics that are not `in_tree` are also metrics of a level of the class tree, as in R@1:level2.
"""

LEVEL_NAMES = {
    "R@k:level1": "R@k with the groups of level 1 of the class tree, the coarsest, as labels; so with every metric per query"
}
"""The line of `likewise list metrics` about levels."""

LEVEL_ENDING = re.compile(r"^(?P<base>.+):level(?P<level>[1-9][0-9]*)$", re.DOTALL)
"""Name of a metric on a level of the class tree; level 1 is the coarsest."""

SET_METRIC_FAMILIES = (spectrum, clustering, verification)
"""Modules of set metrics."""

NAMES: dict[str, str] = {name: entry.about for name, entry in PER_QUERY.items()}
SET_NAMES: dict[str, str] = {name: line for family in SET_METRIC_FAMILIES for name, line in family.NAMES.items()}

_IMPORTED_METRICS: dict[str, QueryMetric | SetMetric] = {}
"""Imported metrics by their spec text. Only `admit` adds to it."""


class RankingDepth(NamedTuple):
    """The depth of rankings that some metrics need."""

    k: int  # smallest depth of every ranking
    all_hits: bool  # whether the ranks of all relevant gallery rows are needed


def import_metrics(names: Iterable[str], allow_imports: bool) -> None:
    """Import the metrics among `names` that are dotted names, so that all functions of this module accept them.

    A stage calls it before it uses metric names from its settings.

    Args:
        allow_imports: whether importing, which runs the code, is allowed. If False, a dotted name is an error.
    """
    for name in filter(_is_dotted, map(_without_level, names)):
        from likewise.core.settings.spec import build

        component = build(name, allow_imports=allow_imports)
        if not isinstance(component, QueryMetric | SetMetric):
            raise LikewiseError(
                f"metrics: '{name}' must be a QueryMetric or a SetMetric, got a {type(component).__name__}; derive its class "
                "from one of these in likewise.contracts"
            )
        _IMPORTED_METRICS[name] = component


def metric(name: str) -> Metric:
    """Return the metric per query of this name.

    If `level_of(name)`, it measures the ranking with the labels of that level; if `is_tree_metric(name)`, a TreeRetrieval.
    """
    base = _without_level(name)
    if parsed := _parse(base):
        entry, k = parsed
        if entry.in_tree and base != name:
            raise LikewiseError(
                f"metrics: '{base}' measures all levels of the class tree at once, got '{name}'; use {base}"
            )
        return entry.measure if k is None else partial(entry.measure, k=k)
    if isinstance(own := _IMPORTED_METRICS.get(base), QueryMetric):
        return own
    raise LikewiseError(_unknown_metric_message(base))


def level_of(name: str) -> int | None:
    """Return the level of the class tree that a metric is measured on, 1 = coarsest; None: the classes themselves."""
    found = LEVEL_ENDING.match(name)
    return int(found["level"]) if found else None


def _without_level(name: str) -> str:
    """Return the name of a metric without its level: "R@1:level2" -> "R@1"."""
    found = LEVEL_ENDING.match(name)
    return found["base"] if found else name


def is_tree_metric(name: str) -> bool:
    """Return whether a metric per query measures a TreeRetrieval."""
    parsed = _parse(name)
    return parsed is not None and parsed[0].in_tree


def low_is_good(name: str) -> bool:
    """Return whether low values of a metric per query are good."""
    parsed = _parse(name)
    return parsed is not None and parsed[0].low_is_good


def is_graded(name: str) -> bool:
    """Return whether the values of a metric per query depend on graded relevance, not only on which rows are relevant."""
    parsed = _parse(_without_level(name))
    return parsed is not None and parsed[0].graded


def graded_depth(names: Iterable[str]) -> int:
    """Return the number of results whose graded relevance these metrics need."""
    return max((k for name in names if is_graded(name) and (k := last_rank(name))), default=0)


def needs_graded_hits(names: Iterable[str]) -> bool:
    """Return whether one of these metrics needs the rank of every gallery row of relevance above 0."""
    return any(is_graded(name) and last_rank(name) is None for name in names)


def needs_triplets(names: Iterable[str]) -> bool:
    """Return whether one of these metrics needs judged triplets."""
    return any(_without_level(name) == "triplet-agreement" for name in names)


def last_rank(name: str) -> int | None:
    """Return the last rank that a metric per query reads; None if that depends on the number of relevant gallery rows."""
    parsed = _parse(_without_level(name))
    if parsed is None:
        return None
    return 1 if parsed[1] is None and (parsed[0].in_tree or needs_triplets([name])) else parsed[1]


def _unknown_metric_message(name: str) -> str:
    """Return the error message for a name that is no metric per query."""
    if bare := re.fullmatch(r"map@([1-9][0-9]*)", name, re.IGNORECASE):
        meanings = ", ".join(f"mAP@{bare[1]}/{over} ({users})" for over, users in ranking.DIVISOR_USERS.items())
        return f"metrics: '{name}' is ambiguous; name the divisor: {meanings}"
    if is_set_metric(name):
        return (
            f"metrics: a metric per query is needed here, but '{name}' is one value for a whole set; "
            f"use one of {', '.join(NAMES)} (k is an integer, as in R@1)"
        )
    if _is_dotted(name):
        return (
            f"metrics: '{name}' must be imported first, which runs its code; use --allow-imports if it is trusted code"
        )
    if ":" in name:
        base = name.rpartition(":")[0]
        return f"metrics: a level is named level1 (the coarsest), level2 and so on, as in {base}:level1, got '{name}'"
    known = [*NAMES, *SET_NAMES]
    for letter, pattern, must in (
        ("@k", "@[-+.0-9]+", "k must be an integer of 1 or more, as in R@1"),
        ("=x", "=.*", "x must be a share from 0 to 1, as in TAR@FAR=0.001"),
    ):
        generic = re.sub(pattern, letter, name)
        if letter in generic and generic in known:
            return f"metrics: in {generic} {must}; got '{name}'"
    hint = "separate names by spaces, as in R@1 R@10; " if "," in name else ""
    near = nearest_name(name, known)
    return f"metrics: there is no '{name}'{near} There are {', '.join(known)} ({hint}k is an integer, as in R@1)"


def knows(name: str) -> bool:
    """Return whether a name is a built-in metric per query."""
    return _parse(name) is not None


def reach(names: Iterable[str]) -> RankingDepth:
    """Return the depth of rankings that these metrics need beyond the usual R + 1. Set metrics need none."""
    names = list(map(_without_level, names))
    parsed = [p for p in map(_parse, names) if p]
    imported = [m for name in names if isinstance(m := _IMPORTED_METRICS.get(name), QueryMetric)]
    depths = [k for _, k in parsed if k] + [m.depth for m in imported]
    return RankingDepth(max(depths, default=1), any(e.all_hits for e, _ in parsed) or any(m.all_hits for m in imported))


def is_set_metric(name: str) -> bool:
    """Return whether a name is a set metric, not a metric per query. False for a dotted name that was not imported."""
    return isinstance(_IMPORTED_METRICS.get(name), SetMetric) or any(
        family.knows(name) for family in SET_METRIC_FAMILIES
    )


def is_label_free(name: str) -> bool:
    """Return whether a set metric does not use the labels."""
    return spectrum.knows(name) and name.startswith("rho")


def measure_set(names: Iterable[str], z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> dict[str, float]:
    """Return these set metrics by name, in this order; NaN where a metric is undefined.

    Embeddings are scaled to unit length first, so that values for losses on raw embeddings are comparable with others.
    """
    names = list(names)
    for name in names:
        if not is_set_metric(name):
            raise LikewiseError(
                f"metrics: a set metric is needed here, got '{name}'; use one of {', '.join(SET_NAMES)}"
            )
    value: dict[str, float] = {}
    for family in SET_METRIC_FAMILIES:
        own = [name for name in names if family.knows(name)]
        value |= family.measure(own, z, y) if own else {}
    for name in names:
        if isinstance(imported := _IMPORTED_METRICS.get(name), SetMetric):
            value[name] = float(imported(F.normalize(z, dim=1), y))
    return {name: value[name] for name in names}


def undefined_reason(name: str, y: Int[Tensor, "N"]) -> str:
    """Return why a set metric is NaN for samples with these labels."""
    if verification.knows(name):
        return verification.undefined_reason(name, y)
    return "it is not defined for these embeddings"


def as_text(name: str, value: float) -> str:
    """Return a value as text: shares in percent, other values (decay, density, thresholds) as decimals.

    For a dotted name that is not imported, a value from 0 to 1 is shown as a share.
    """
    if math.isnan(value):
        return "nan"
    own = isinstance(_IMPORTED_METRICS.get(name), SetMetric) or (_is_dotted(name) and not 0 <= value <= 1)
    plain = own or spectrum.knows(name) or name.startswith("threshold")
    return f"{value:.4f}" if plain else f"{100 * value:.1f} %"


def _is_dotted(name: str) -> bool:
    """Return whether a name is dotted, with or without arguments: my_lab.metrics.Mine, my_lab.metrics.Mine(k=5)."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+\s*(\(.*\))?", name.strip(), re.DOTALL) is not None


def _parse(name: str) -> tuple[PerQuery, int | None] | None:
    """Return the built-in metric per query of this name and its k: "R@10" -> (entry of "R@k", 10). None if there is none."""
    name = re.sub(r"^nDCG@", "NDCG@", name)  # the usual spelling of papers
    found = re.fullmatch(r"([\w-]+@)([1-9][0-9]*)(/\w+)?", name)
    generic, k = (f"{found[1]}k{found[3] or ''}", int(found[2])) if found else (name, None)
    fits = generic in PER_QUERY and ("@k" in generic) == (k is not None)
    return (PER_QUERY[generic], k) if fits else None
