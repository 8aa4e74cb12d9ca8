"""Check the settings of a training before its data is read."""

from __future__ import annotations

from likewise.core.settings import Train, check
from likewise.runs.defaults import check_texts, fold_specs
from likewise.score.checks import check_metric_names


def check_settings(config: Train) -> None:
    """Raise for the first setting that cannot be right: types, ranges, specs, durations, the backbone and metrics."""
    check(config)
    check_texts(config)
    check_metric_names(config)


def describe_folds(config: Train) -> str:
    """Return a sentence about the folds that a training leaves out; "" if its protocol has none."""
    folds = fold_specs(config.protocol) if config.protocol else None
    if not folds:
        return ""
    return f"this trains the first of {len(folds)} folds; `likewise bench` trains them all and scores them together"
