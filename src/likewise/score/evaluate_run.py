"""Score the network of a run on a split of its own data, or of any data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from likewise.core.contracts import Protocol, Split
from likewise.core.distributed.process_group import world
from likewise.core.retrieval.ranking import WORKING_MEMORY_BYTES
from likewise.core.settings import Train, default_metrics
from likewise.core.types import Embedded, Items, Retrieval, Scores
from likewise.data.decoded_cache import Pixels
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.score.checks import find_leaks, rows_of
from likewise.score.label_correction import score_and_correct
from likewise.score.metrics import import_metrics
from likewise.score.relevance import changed_files, relevance_of_run
from likewise.score.results import add_set_metrics, best_test_epoch, write_queries, write_results
from likewise.score.scoring import as_compared, with_tree
from likewise.score.wrong_labels import find_wrong_labels


def evaluate_run(
    run: Run,
    *,
    config: Train,
    items: Items,
    metrics: Sequence[str],
    device: torch.device,
    split: Split = "test",
    checkpoint: str = "best",
    similarity: str | None = None,
    workers: int = -1,
    quiet: bool = False,
    budget: int | None = None,
    exclude: str | None = None,
    pixels: Pixels | None = None,
    known: bool = False,
) -> dict:
    """Return the scores of the network of a run on a split of its data.

    The result is written into the run folder only for the best checkpoint on the test split, with the similarity of its loss
    and without excluded pairs; metrics that an earlier evaluation of the finished run wrote stay. If all metrics are of the
    whole set, nothing is ranked, and they are added to scores.json if the run has one.

    Args:
        exclude: .csv file with pairs of rows that are not results of each other.
        pixels: decoded images of the items, if the caller has them.
        known: True if the caller has checked that `items` is the data of the run.
    """
    opened = OpenRun(
        run, checkpoint=checkpoint, device=device, workers=workers, quiet=quiet, settings=config, items=items
    )
    if not known:
        opened.take(items)
    return evaluate_open(
        opened, metrics, split=split, similarity=similarity, budget=budget, exclude=exclude, pixels=pixels
    )


def evaluate_open(
    opened: OpenRun,
    metrics: Sequence[str],
    *,
    split: Split = "test",
    similarity: str | None = None,
    budget: int | None = None,
    exclude: str | None = None,
    taxonomy: str | None = None,
    pixels: Pixels | None = None,
    correct: str | None = None,
    relevance: str | None = None,
    per_query: Path | None = None,
    say=print,
) -> dict:
    """Return the scores of the network of an open run on a split of its data; see `evaluate_run`.

    Args:
        correct: source of corrected scores, as in `likewise evaluate --correct-test-labels`.
        relevance: what is relevant, if not by the relevance of the run; nothing is written into the run folder then.
        per_query: file for the scores per query.
    """
    run, items, protocol, finished = opened.run, with_tree(opened.items, taxonomy), opened.protocol, opened.run.done
    similarity = similarity or opened.similarity
    result, scores, found, e = score_open(
        opened, items, protocol, split, metrics, similarity, pixels=pixels, budget=budget, exclude=exclude, correct=correct,
        relevance=relevance, say=say,
    )  # fmt: skip
    result |= {"checkpoint": opened.checkpoint, "split": split}
    if split == "test":
        best = best_test_epoch(run) if opened.checkpoint == "best" else None
        result |= {"leaks": find_leaks(items, protocol, opened.quiet), "best_test_epoch": best}
    own = opened.checkpoint == "best" and split == "test" and similarity == opened.similarity and exclude is None
    own = own and relevance is None
    if per_query is not None and found is not None and world()[0] == 0:
        write_queries(per_query, scores, found, e, items)
    if own and run.done == finished and world()[0] == 0:  # unless training has ended in the meantime
        if found is None:
            add_set_metrics(run, result)
        else:
            write_results(run, items, e, protocol.query_gallery(items, e.row.numpy()), scores, found, result)
    return result


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
    relevance: str | None = None,
    **how,
) -> tuple[dict, Scores, Retrieval | None, Embedded]:
    """Return the scores of the network of an open run on a split of some data: see `score_and_correct`; and the embeddings.

    For a test split, "wrong_labels" is the estimated number of wrong labels, if it is clearly above zero.

    Args:
        budget: memory for the ranking, in bytes; None: the default.
        relevance: what is relevant; None: as in the training of the run.
        how: further arguments of `score_and_correct`.
    """
    allow_imports = opened.settings.allow_imports
    import_metrics(metrics, allow_imports)
    rows = rows_of(protocol, items, split)
    judged = relevance_of_run(opened.settings.relevance, relevance, items, rows, allow_imports)
    for file in changed_files(judged, opened.run.about.get("relevance_files", {})):
        opened.say(f"the relevance is not that of the training, because this file has changed since then: {file}")
    metrics = default_metrics(metrics, judged and judged.source.gives)
    e = as_compared(opened.embed(items, rows, title=f"embed {split} split", pixels=pixels), similarity)
    how |= {"allow_imports": allow_imports, "budget": budget or WORKING_MEMORY_BYTES, "relevance": judged}
    found = score_and_correct(e, items, protocol, metrics, similarity, opened.device, opened.quiet, **how)
    if split == "test" and items.label_sets is None and world()[0] == 0 and (wrong := find_wrong_labels(e, items)):
        found[0]["wrong_labels"] = wrong
    return *found, e
