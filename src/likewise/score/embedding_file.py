"""Score embeddings in a file or in arrays."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from likewise.core.devices import bytes_of, choose_device
from likewise.core.distributed.process_group import joined, world
from likewise.core.files import check_output_path, write_json
from likewise.core.settings import Evaluate, check, default_metrics
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.dataset import protocol_for
from likewise.data.features import read_embeddings
from likewise.runs.embeddings import origin
from likewise.runs.per_query import write_per_query
from likewise.score.array_labels import items_of_arrays, relevance_of_rows
from likewise.score.checks import check_length, find_leaks, rows_of
from likewise.score.label_correction import score_and_correct
from likewise.score.metrics import import_metrics, is_set_metric
from likewise.score.scoring import with_tree


def evaluate_embeddings(config: Evaluate, file: Path, device: torch.device) -> dict:
    """Return the scores of a file of embeddings, as in scores.json; with `config.per_query`, also write a parquet file."""
    out = check_for_embeddings(config, f"'{file}' is a file of embeddings")
    items = read_embeddings(str(file), config.labels)
    similarity = config.similarity or origin(file).get("similarity", "cosine")
    return score_items(config, items, f"'{file}'", similarity, device, out)


def evaluate_arrays(config: Evaluate, z, y, relevance=None) -> dict:
    """Return the scores of an array of embeddings (N, D) with N labels, as `evaluate_embeddings` does for a file.

    Args:
        y: labels, or several labels for each row: lists of them, or a matrix of 0 and 1.
        relevance: a `Relevance`, or a matrix (N, N) of values from 0 to 1, NaN where it is not known.
    """
    check(config)
    out = check_for_embeddings(config, "arrays of embeddings were given")
    if config.labels:
        raise LikewiseError(
            f"evaluate: the labels of an array must be an array too, got the file '{config.labels}'; pass evaluate(z, y)"
        )
    items = items_of_arrays(z, y)
    scores_file = check_output_path(config.out, ".json", "evaluate") if config.out else None
    with joined(choose_device(config.device)) as device:
        result = score_items(config, items, "an array", config.similarity or "cosine", device, out, relevance)
        if scores_file and world()[0] == 0:
            write_json(scores_file, result)
        return result


def check_for_embeddings(config: Evaluate, what: str) -> Path | None:
    """Return the file for scores per query, if any. Raises for settings that need a run; `what` begins the error."""
    for name, usual in (("data", None), ("root", None), ("checkpoint", "best")):
        if getattr(config, name) != usual:
            raise LikewiseError(f"evaluate: {what}, but --{name} needs a run; drop --{name}")
    import_metrics(config.metrics, config.allow_imports)
    out = check_output_path(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None
    if out and all(map(is_set_metric, config.metrics)):
        raise LikewiseError("evaluate: --per-query needs at least one metric per query; add R@1 to --metrics")
    return out


def score_items(
    config: Evaluate,
    items: Items,
    name: str,
    similarity: str,
    device: torch.device,
    out: Path | None,
    relevance: Any = None,
) -> dict:
    """Return the scores of the embeddings in `items.x`; with `out`, also write the scores per query.

    Args:
        relevance: a `Relevance` or a matrix, in place of `config.relevance`.
    """
    if items.split is None and config.split != "test":
        raise LikewiseError(
            f"evaluate: {name} has no `split` column, so no {config.split} split; add the column, or drop --split"
        )
    if config.split == "test" and (items.split is None or not (items.split != "").any()):
        items = dataclasses.replace(items, split=np.full(len(items), "test"))
    items = with_tree(items, config.taxonomy)
    protocol = protocol_for(items)
    rows = rows_of(protocol, items, config.split)
    assert items.x is not None
    x = items.x if len(rows) == len(items) else items.x[rows]  # no copy of all rows: they may not fit into memory
    x = x if x.flags.writeable else x.copy()  # torch needs a writeable array
    e = Embedded(torch.as_tensor(x), torch.as_tensor(items.y[rows]), torch.as_tensor(rows))
    length = check_length(e.z, similarity == "cosine" or any(map(is_set_metric, config.metrics)))
    how = {"budget": bytes_of(config.memory), "exclude": config.exclude, "correct": config.correct_test_labels}
    judged = relevance_of_rows(relevance, config.relevance, items, rows, config.allow_imports)
    metrics = default_metrics(config.metrics, judged and judged.source.gives)
    result, scores, found = score_and_correct(
        e, items, protocol, metrics, similarity, device, config.quiet, **how, allow_imports=config.allow_imports,
        relevance=judged,
    )  # fmt: skip
    if out and world()[0] == 0:
        assert found is not None
        write_per_query(out, scores, found, e, items)
    if config.split == "test" and (items.split == "train").any():
        result["leaks"] = find_leaks(items, protocol, config.quiet)
    return result | {"length": length}
