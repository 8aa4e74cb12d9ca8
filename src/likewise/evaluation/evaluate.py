"""evaluate: rank the gallery for the queries of a run or of embeddings, and compute metrics per query and of the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from likewise.config import Evaluate, Train, check
from likewise.contracts import Split
from likewise.data.decoded_cache import Pixels
from likewise.distributed.process_group import joined, world
from likewise.evaluation.checks import find_leaks
from likewise.evaluation.evaluate_other import evaluate_other
from likewise.evaluation.open_scores import score_open
from likewise.evaluation.other_data import load_other
from likewise.evaluation.results import add_set_metrics, best_test_epoch, write_results
from likewise.evaluation.scoring import with_tree
from likewise.io.files import check_output_path, write_json
from likewise.runs.devices import bytes_of, choose_device
from likewise.runs.folder import Run, find_target
from likewise.runs.open import OpenRun
from likewise.types import Items, LikewiseError


def evaluate(config: Evaluate, say=print) -> dict:
    """Return the scores of a run or a file of embeddings, as in scores.json. Processes of torchrun share the queries."""
    check(config)
    target = find_target(config.target, "evaluate")
    out = check_output_path(config.out, ".json", "evaluate") if config.out else None
    with joined(choose_device(config.device)) as device:
        result = evaluate_target(config, target, device, say)
        if out and world()[0] == 0:
            write_json(out, result)
        return result


def evaluate_target(config: Evaluate, target: Path, device: torch.device, say) -> dict:
    """Return the scores of a run folder or a file of embeddings."""
    if not target.is_dir():
        from likewise.evaluation.embedding_file import evaluate_embeddings

        return evaluate_embeddings(config, target, device)
    if config.labels:
        raise LikewiseError(f"evaluate: '{target}' is a run and has labels of its own; drop --labels")
    opened = open_run(config, target, device, say, data=config.data, root=config.root)
    other = load_other(opened, config.root) if config.data else None
    if not opened.run.done:
        say(f"this run is not finished, so these are the scores of its last checkpoint: {opened.run.path}")
    if other is not None:
        return evaluate_other(config, open_run(config, target, device, say), other)
    if config.per_query:
        raise LikewiseError(f"evaluate: '{target}' is a run and has per-query of its own; drop --per-query")
    return evaluate_open(
        opened, config.metrics, split=config.split, similarity=config.similarity, budget=bytes_of(config.memory),
        exclude=config.exclude, taxonomy=config.taxonomy, correct=config.correct_test_labels, say=say,
    )  # fmt: skip


def open_run(config: Evaluate, target: Path, device: torch.device, say, **place: str | None) -> OpenRun:
    """Return the run that the config names; `place`: data and root, if they replace those of the run."""
    return OpenRun(
        Run(target), checkpoint=config.checkpoint, device=device, allow_imports=config.allow_imports, skip_bad=config.skip_bad,
        workers=config.workers, quiet=config.quiet, say=say, **place,
    )  # fmt: skip


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
    say=print,
) -> dict:
    """Return the scores of the network of an open run on a split of its data; see `evaluate_run`.

    Args:
        correct: source of corrected scores, as in `likewise evaluate --correct-test-labels`.
    """
    run, items, protocol, finished = opened.run, with_tree(opened.items, taxonomy), opened.protocol, opened.run.done
    similarity = similarity or opened.similarity
    result, scores, found, e = score_open(
        opened, items, protocol, split, metrics, similarity, pixels=pixels, budget=budget, exclude=exclude, correct=correct,
        say=say,
    )  # fmt: skip
    result |= {"checkpoint": opened.checkpoint, "split": split}
    if split == "test":
        best = best_test_epoch(run) if opened.checkpoint == "best" else None
        result |= {"leaks": find_leaks(items, protocol, opened.quiet), "best_test_epoch": best}
    own = opened.checkpoint == "best" and split == "test" and similarity == opened.similarity and exclude is None
    if own and run.done == finished and world()[0] == 0:  # unless training has ended in the meantime
        if found is None:
            add_set_metrics(run, result)
        else:
            write_results(run, items, e, protocol.query_gallery(items, e.row.numpy()), scores, found, result)
    return result
