"""Score two runs on the same data, by its labels and without samples that either trained on, so that they can be compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from likewise.core.devices import choose_device
from likewise.core.settings import Compare, Evaluate
from likewise.core.types import LikewiseError
from likewise.data.dataset import load_items, protocol_for
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.per_query import PerQuery, as_per_query
from likewise.score.answers import count_relevant_rows, max_results
from likewise.score.checks import check_input, rows_of
from likewise.score.evaluate_run import score_open
from likewise.score.intervals import MIN_INTERVAL_UNITS
from likewise.score.metrics import import_metrics, is_set_metric, reach
from likewise.score.other_data import OtherData, describe_classes, without_trained


def score_sides(config: Compare, say) -> tuple[list[tuple[PerQuery, dict]], dict]:
    """Return the queries of A and B on the data of `config.on`, each with its config.json, and facts about the data for JSON."""
    assert config.on is not None
    runs = [open_side_on(target, config, say) for target in (config.run_a, config.run_b)]
    items = load_items(
        config.on, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        allow_imports=config.allow_imports,
    )  # fmt: skip
    for opened in runs:
        check_input("compare", str(opened.run.path), opened.run.about["features"], items, config.on)
    data = without_trained(items, config.on, runs)
    metrics = metrics_for(config, data)
    sides = []
    for opened in runs:
        protocol = protocol_for(data.items)
        _, scores, found, e = score_open(opened, data.items, protocol, "test", metrics, opened.similarity, say=say)
        assert found is not None  # `metrics_for` gives metrics per query
        sides.append((as_per_query(scores, found, e, data.items), opened.run.about))
    facts = {"data": config.on, "rows": data.rows, "left_out": data.left_out, "trained": list(data.trained)}
    return sides, facts | {"noun": data.noun, "classes": list(data.classes), "sentence": describe_on(data)}


def open_side_on(target: str, config: Compare, say) -> OpenRun:
    """Return a run to score on other data; raises for a per_query.parquet, which has no network."""
    path = Path(target).expanduser()
    if not path.is_dir():
        raise LikewiseError(
            f"compare: --on scores both runs, so A and B must be run folders, got '{target}'; give its run folder, or drop --on"
        )
    run = Run(path)
    if not run.done:
        say(f"this run is not finished, so its last checkpoint is scored: {run.path}")
    device, quiet = choose_device(config.device), config.quiet
    return OpenRun(run, device=device, allow_imports=config.allow_imports, workers=config.workers, quiet=quiet, say=say)


def metrics_for(config: Compare, data: OtherData) -> tuple[str, ...]:
    """Return the metrics to compare; by default those of `likewise evaluate` that the gallery is large enough for.

    Raises if too few queries are left for an interval, or if a metric is not one per query.
    """
    import_metrics(config.metrics or (), config.allow_imports)
    if whole := [name for name in config.metrics or () if is_set_metric(name)]:
        raise LikewiseError(
            f"compare: the metrics must have a value per query, got '{whole[0]}'; leave it out, or run "
            "`likewise evaluate RUN --data DATA` for both runs"
        )
    left, queries, protocol = data.rows - data.left_out - data.remainder, 0, protocol_for(data.items)
    if left:
        queries = int((count_relevant_rows(data.items, protocol, rows_of(protocol, data.items, "test")) > 0).sum())
    if queries < MIN_INTERVAL_UNITS:
        of_a, of_b = data.trained
        raise LikewiseError(
            f"compare: at least {MIN_INTERVAL_UNITS} queries are needed that neither run trained on, got {queries}: of the "
            f"{data.rows:,} {data.noun} of '{Path(data.name).name}', A trained on {of_a:,} and B on {of_b:,}, {left:,} are left, "
            f"and {queries} of them have another one of their class among these; give new {data.noun}, or train both with the "
            "same test split (column `split`)"
        )
    if config.metrics:
        return config.metrics
    usual: Any = next(f.default for f in dataclasses.fields(Evaluate) if f.name == "metrics")
    available = max_results(*protocol.query_gallery(data.items, rows_of(protocol, data.items, "test")))
    return tuple(name for name in usual if reach([name]).k <= available)


def describe_on(data: OtherData) -> str:
    """Return a sentence about the samples that are left out, and about classes that a run trained on."""
    of_a, of_b = data.trained
    if not data.left_out:
        return f"neither run trained on any of these {data.rows:,} {data.noun}{describe_classes(data)}"
    return (
        f"{data.left_out:,} of the {data.rows:,} {data.noun} are left out, because a run trained on them (A on {of_a:,}, B on "
        f"{of_b:,}){describe_classes(data)}"
    )
