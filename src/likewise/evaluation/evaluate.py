"""evaluate: rank the gallery for the queries of a run or of embeddings, and compute metrics per query and of the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from likewise.config import Evaluate, Train, check
from likewise.contracts import Split
from likewise.data.decoded_cache import Pixels
from likewise.distributed.process_group import joined, world
from likewise.evaluation.checks import find_leaks, rows_of
from likewise.evaluation.label_correction import score_and_correct
from likewise.evaluation.results import best_test_epoch, write_results
from likewise.evaluation.scoring import as_compared, with_tree
from likewise.metrics import import_metrics
from likewise.retrieval.ranking import WORKING_MEMORY_BYTES
from likewise.runs.devices import bytes_of, choose_device
from likewise.runs.folder import Run, find_target
from likewise.runs.open import OpenRun
from likewise.types import Items, LikewiseError


def evaluate(config: Evaluate, say=print) -> dict:
    """Return the scores of a run or a file of embeddings, as in scores.json. Processes of torchrun share the queries."""
    check(config)
    target = find_target(config.target, "evaluate")
    with joined(choose_device(config.device)) as device:
        return evaluate_target(config, target, device, say)


def evaluate_target(config: Evaluate, target: Path, device: torch.device, say) -> dict:
    """Return the scores of a run folder or a file of embeddings."""
    if target.is_dir():
        for name in ("labels", "per_query"):
            if getattr(config, name):
                flag = name.replace("_", "-")
                raise LikewiseError(f"evaluate: '{target}' is a run and has {flag} of its own; drop --{flag}")
        opened = OpenRun(
            Run(target), checkpoint=config.checkpoint, device=device, data=config.data, root=config.root,
            allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
        )  # fmt: skip
        if not opened.run.done:
            say(f"this run is not finished, so these are the scores of its last checkpoint: {opened.run.path}")
        return evaluate_open(
            opened, config.metrics, split=config.split, similarity=config.similarity, budget=bytes_of(config.memory),
            exclude=config.exclude, taxonomy=config.taxonomy, correct=config.correct_test_labels, say=say,
        )  # fmt: skip
    from likewise.evaluation.embedding_file import evaluate_embeddings

    return evaluate_embeddings(config, target, device)


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
    budget: int = WORKING_MEMORY_BYTES,
    exclude: str | None = None,
    pixels: Pixels | None = None,
    known: bool = False,
) -> dict:
    """Return the scores of the network of a run on a split of its data.

    The result is written into the run folder only for the best checkpoint on the test split, with the similarity of its loss
    and without excluded pairs. If all metrics are of the whole set, nothing is ranked and nothing is written.

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
    budget: int = WORKING_MEMORY_BYTES,
    exclude: str | None = None,
    taxonomy: str | None = None,
    pixels: Pixels | None = None,
    correct: str | None = None,
    say=print,
) -> dict:
    """Return the scores of the network of an open run on a split of its data; see `evaluate_run`.

    Args:
        correct: source of corrected scores, as in `likewise evaluate --correct-test-labels`.
    """
    import_metrics(metrics, opened.settings.allow_imports)
    run, items, protocol, finished = opened.run, with_tree(opened.items, taxonomy), opened.protocol, opened.run.done
    rows = rows_of(protocol, items, split)
    similarity = similarity or opened.similarity
    e = as_compared(opened.embed(items, rows, title=f"embed {split} split", pixels=pixels), similarity)
    how = {
        "budget": budget,
        "exclude": exclude,
        "correct": correct,
        "allow_imports": opened.settings.allow_imports,
        "say": say,
    }
    result, scores, found = score_and_correct(
        e, items, protocol, metrics, similarity, opened.device, opened.quiet, **how
    )
    result |= {"checkpoint": opened.checkpoint, "split": split}
    if split == "test":
        best = best_test_epoch(run) if opened.checkpoint == "best" else None
        result |= {"leaks": find_leaks(items, protocol, opened.quiet), "best_test_epoch": best}
    own = opened.checkpoint == "best" and split == "test" and similarity == opened.similarity and exclude is None
    if (
        own and found is not None and run.done == finished and world()[0] == 0
    ):  # unless training has ended in the meantime
        write_results(run, items, e, protocol.query_gallery(items, rows), scores, found, result)
    return result
