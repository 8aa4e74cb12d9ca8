"""Scores of the network of an open run on a split of any data."""

from __future__ import annotations

from collections.abc import Sequence

from likewise.contracts import Protocol, Split
from likewise.data.decoded_cache import Pixels
from likewise.distributed.process_group import world
from likewise.evaluation.checks import rows_of
from likewise.evaluation.label_correction import score_and_correct
from likewise.evaluation.scoring import as_compared
from likewise.evaluation.wrong_labels import find_wrong_labels
from likewise.metrics import import_metrics
from likewise.retrieval.ranking import WORKING_MEMORY_BYTES
from likewise.runs.open import OpenRun
from likewise.types import Embedded, Items, Retrieval, Scores


def score_open(
    opened: OpenRun,
    items: Items,
    protocol: Protocol,
    split: Split,
    metrics: Sequence[str],
    similarity: str,
    *,
    pixels: Pixels | None = None,
    budget: int | None = None,
    **how,
) -> tuple[dict, Scores, Retrieval | None, Embedded]:
    """Return the scores of the network of an open run on a split of some data: see `score_and_correct`; and the embeddings.

    For a test split, "wrong_labels" is the estimated number of wrong labels, if it is clearly above zero.

    Args:
        budget: memory for the ranking, in bytes; None: the default.
        how: exclude, correct and say, as in `score_and_correct`.
    """
    import_metrics(metrics, opened.settings.allow_imports)
    rows = rows_of(protocol, items, split)
    e = as_compared(opened.embed(items, rows, title=f"embed {split} split", pixels=pixels), similarity)
    how |= {"allow_imports": opened.settings.allow_imports, "budget": budget or WORKING_MEMORY_BYTES}
    found = score_and_correct(e, items, protocol, metrics, similarity, opened.device, opened.quiet, **how)
    if split == "test" and world()[0] == 0 and (wrong := find_wrong_labels(e, items)):
        found[0]["wrong_labels"] = wrong
    return *found, e
