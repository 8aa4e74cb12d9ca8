"""Corrected scores of an evaluation: the source that the user names, the ranking that all labels share, the result as a dict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import NoiseModel, Protocol
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES
from likewise.core.settings.spec import build
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.score.answers import max_results
from likewise.score.excluded_pairs import read_pairs
from likewise.score.fixed_ranking import FixedRanking
from likewise.score.metrics import is_set_metric, reach
from likewise.score.relevance import RelevanceOfRows
from likewise.score.scoring import MAX_STORED_RESULTS, score_with_galleries

if TYPE_CHECKING:
    from likewise.score.corrected_scores import Corrected

MAX_RANKED_CELLS = 2**26
"""Largest number of neighbours of all queries together that are kept for a correction: about 1 GB."""

LARGEST_CLASS_FACTOR = 2
"""Depth of the ranking in sizes of the largest class: under the true labels a class may be larger than under the given ones."""

TOO_DEEP_REASON = "its classes are too large: the neighbours of all queries would not fit in memory"


def score_and_correct(
    e: Embedded, items: Items, protocol: Protocol, metrics: Sequence[str], similarity: str, device: torch.device, quiet: bool,
    *, budget: int = WORKING_MEMORY_BYTES, exclude: str | None = None, correct: str | None = None,
    allow_imports: bool = False, say=print, relevance: RelevanceOfRows | None = None,
) -> tuple[dict, Scores, Retrieval | None]:  # fmt: skip
    """Return the content of scores.json, with corrected scores if `correct` names a source; see `score_with_galleries`.

    Args:
        exclude: .csv file with pairs of rows that are not results of each other.
        correct: source of corrected scores, as in `likewise evaluate --correct-test-labels`.
        relevance: what is relevant, as in `score`.
    """
    how: dict = {"budget": budget, "exclude": read_pairs(exclude, items), "relevance": relevance}
    if not correct:
        return score_with_galleries(e, items, protocol, metrics, similarity, device, quiet, **how)
    if relevance is not None or items.label_sets is not None:
        raise LikewiseError(
            "evaluate: --correct-test-labels needs one class per sample and rows of this class as relevant, but here a relevance "
            "decides; drop the flag, or --relevance"
        )
    if items.camera is not None:
        raise LikewiseError(
            "evaluate: --correct-test-labels needs a gallery that does not depend on labels, but with the column `camera` a "
            "query has no gallery rows of its own class and camera; drop the column, or the flag"
        )
    how["stored"] = ranking_depth(e, items, protocol, metrics)
    result, scores, found = score_with_galleries(e, items, protocol, metrics, similarity, device, quiet, **how)
    source = {"allow_imports": allow_imports, "say": say}
    result["corrected"] = correct_scores(correct, e, items, protocol, metrics, found, how["exclude"], **source)
    return result, scores, None if found is None else stored_results(found)


def ranking_depth(e: Embedded, items: Items, protocol: Protocol, metrics: Sequence[str]) -> int:
    """Return the number of neighbours of every query that a correction needs, as far as they fit in memory."""
    is_query, in_gallery = protocol.query_gallery(items, e.row.numpy())
    largest = int(torch.bincount(e.y[torch.as_tensor(in_gallery)]).max())
    wanted = max(MAX_STORED_RESULTS, reach(metrics).k, LARGEST_CLASS_FACTOR * largest)
    fitting = max(MAX_STORED_RESULTS, reach(metrics).k, MAX_RANKED_CELLS // max(1, int(is_query.sum())))
    return min(wanted, fitting, max_results(is_query, in_gallery))


def stored_results(found: Retrieval) -> Retrieval:
    """Return the ranking with the results that a run folder stores."""
    first = {name: getattr(found, name)[:, :MAX_STORED_RESULTS] for name in ("row", "match", "sim")}
    return dataclasses.replace(found, **first)


def correct_scores(
    source: str, e: Embedded, items: Items, protocol: Protocol, metrics: Sequence[str], found: Retrieval | None,
    exclude: Int[np.ndarray, "M 2"] | None = None, *, allow_imports: bool = False, say=print,
) -> dict | None:  # fmt: skip
    """Return the corrected scores: source, [value, low, high] by metric, and reasons by metric that cannot be corrected.

    None if the source is a file that does not exist: it is then written as a form for reviewers.
    """
    from likewise.score.corrected_scores import by_audit, by_noise, by_review
    from likewise.score.reviewed_queries import read_review, write_form

    if found is None:
        raise LikewiseError(
            "evaluate: --correct-test-labels needs a metric per query, got only metrics of the whole set; add R@1 to --metrics"
        )
    classes, y = e.y.unique(return_inverse=True)
    ranking = fixed_ranking(e, items, protocol, found, exclude)
    shallow = [] if is_deep_enough(ranking, y) else [name for name in metrics if needs_class_size(name)]
    names = [name for name in metrics if name not in shallow]
    if source == "audit":
        result = by_audit(e.z.float(), y, len(classes), ranking, names)
    elif source.lower().endswith(".csv"):
        if not Path(source).expanduser().exists():
            return write_form(Path(source).expanduser(), e, items, ranking, reach(metrics).k, say)
        result = by_review(*read_review(source, e, items, ranking, y), ranking, names)
    else:
        result = by_noise(known_transition(source, items, classes.numpy(), allow_imports), y, ranking, names)
    return as_dict(source, result, dict.fromkeys(shallow, TOO_DEEP_REASON))


def as_dict(source: str, result: Corrected, unknown: dict[str, str]) -> dict:
    estimates, reasons = result
    return {
        "source": source,
        "metrics": {name: list(one) for name, one in estimates.items()},
        "unknown": reasons | unknown,
    }


def fixed_ranking(
    e: Embedded, items: Items, protocol: Protocol, found: Retrieval, exclude: Int[np.ndarray, "M 2"] | None
) -> FixedRanking:
    """Return the ranking of an evaluation, as positions among its embeddings."""
    in_gallery = torch.as_tensor(protocol.query_gallery(items, e.row.numpy())[1])
    group = None if items.group is None else torch.as_tensor(items.group)[e.row]
    pairs = None
    if exclude is not None:
        place = torch.full((len(items),), -1).index_put_((e.row,), torch.arange(len(e.row)))
        pairs = place[torch.as_tensor(exclude)]
        pairs = pairs[(pairs >= 0).all(1)]
    return FixedRanking(found.query, found.row, in_gallery, group, pairs)


def needs_class_size(name: str) -> bool:
    """Return whether a metric depends on the number of relevant rows."""
    return not is_set_metric(name) and not name.rpartition("@")[2].isdecimal()


def is_deep_enough(ranking: FixedRanking, y: Int[torch.Tensor, "N"]) -> bool:
    """Return whether rankings have the depth that classes may have under the true labels, or all of the gallery."""
    depth, gallery = ranking.row.shape[1], int(ranking.in_gallery.sum())
    largest = int(torch.bincount(y[ranking.in_gallery]).max())
    return depth >= min(gallery - 1, LARGEST_CLASS_FACTOR * largest)


def known_transition(source: str, items: Items, classes: np.ndarray, allow_imports: bool) -> np.ndarray:
    """Return P(given | true) of the noise model that a spec names, among the classes of the evaluated rows."""
    if "(" not in source and "." not in source:
        raise LikewiseError(
            "evaluate: --correct-test-labels must be 'audit', a noise such as 'Uniform(share=0.1)', or a .csv file of reviewed "
            f"labels, got '{source}'"
        )
    facts = {"class_names": items.class_name, "taxonomy": items.taxonomy, "rows": None, "samples": len(items)}
    return build(source, NoiseModel, allow_imports=allow_imports, **facts).transition(classes)
