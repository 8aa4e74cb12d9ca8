"""evaluate: rank the gallery for the queries of a run or of embeddings, and compute metrics per query and of the whole set."""

from __future__ import annotations

from pathlib import Path

import torch

from likewise.core.devices import bytes_of, choose_device
from likewise.core.distributed.process_group import joined, world
from likewise.core.files import check_output_path, write_json
from likewise.core.settings import Evaluate, check
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run, find_target
from likewise.runs.open import OpenRun
from likewise.score.evaluate_run import evaluate_open
from likewise.score.other_data import load_other
from likewise.score.score_table import Scored


def evaluate(config: Evaluate, say=print) -> Scored:
    """Return the scores of a run or a file of embeddings, as in scores.json. Processes of torchrun share the queries."""
    check(config)
    target = find_target(config.target, "evaluate")
    out = check_output_path(config.out, ".json", "evaluate") if config.out else None
    with joined(choose_device(config.device)) as device:
        result = evaluate_target(config, target, device, say)
        if out and world()[0] == 0:
            write_json(out, result)
        return Scored(result)


def evaluate_target(config: Evaluate, target: Path, device: torch.device, say) -> dict:
    """Return the scores of a run folder or a file of embeddings."""
    if not target.is_dir():
        from likewise.score.evaluate_arrays import evaluate_embeddings

        return evaluate_embeddings(config, target, device)
    if config.labels:
        raise LikewiseError(f"evaluate: '{target}' is a run and has labels of its own; drop --labels")
    opened = open_run(config, target, device, say, data=config.data, root=config.root)
    other = load_other(opened, config.root) if config.data else None
    if not opened.run.done:
        say(f"this run is not finished, so these are the scores of its last checkpoint: {opened.run.path}")
    if other is not None:
        from likewise.score.evaluate_other import evaluate_other

        return evaluate_other(config, open_run(config, target, device, say), other)
    if config.per_query and config.relevance is None:
        raise LikewiseError(f"evaluate: '{target}' is a run and has per-query of its own; drop --per-query")
    return evaluate_open(
        opened, config.metrics, split=config.split, similarity=config.similarity, budget=bytes_of(config.memory),
        exclude=config.exclude, taxonomy=config.taxonomy, correct=config.correct_test_labels, relevance=config.relevance,
        per_query=check_output_path(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None,
        say=say,
    )  # fmt: skip


def open_run(
    config: Evaluate, target: Path, device: torch.device, say, data: str | None = None, root: str | None = None
) -> OpenRun:
    """Return the run that the config names; `data` and `root` replace those of the run."""
    return OpenRun(
        Run(target), checkpoint=config.checkpoint, device=device, allow_imports=config.allow_imports,
        workers=config.workers, quiet=config.quiet, say=say, data=data, root=root,
    )  # fmt: skip
