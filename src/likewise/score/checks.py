"""Checks of an evaluation: the split has rows, embeddings have a direction, and the metrics fit the test split."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.contracts import Protocol, Split
from likewise.core.files import check_output_path
from likewise.core.progress import bar
from likewise.core.settings import Evaluate, Train
from likewise.core.settings.spec import spec
from likewise.core.types import Items, LikewiseError
from likewise.data.leakage import describe_leaks, leaks
from likewise.score.metrics import (
    import_metrics,
    is_graded,
    is_label_free,
    is_set_metric,
    low_is_good,
    measure_set,
    metric,
    needs_triplets,
    reach,
    spectrum,
)
from likewise.score.retrieve import RelevanceOfRows, count_relevant_rows, graded_rows, max_results, relevance_of
from likewise.score.tree_levels import needs_tree, tree_of

MIN_DIRECTION_SPREAD = 1e-5
"""Spread of the directions of embeddings from which ranking by cosine is safe; the first losses of R@1 are at 1e-6."""

MAX_DIRECTION_ROWS = 4096
"""Number of rows that `direction_note` looks at."""


def per_query_file(config: Evaluate) -> Path | None:
    """Return the file for scores per query, if any; raises if it cannot be written."""
    return check_output_path(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None


def rows_of(protocol: Protocol, items: Items, split: Split) -> Int[np.ndarray, "n"]:
    """Return the rows of a split; raises if it is empty."""
    rows = protocol.rows(items, split)
    if split == "test" and not protocol.has_test_split:
        raise LikewiseError(
            f"evaluate: '{items.name}' has no test split, since all of it trained ({spec(protocol)}): there is nothing to score; "
            "train without train=1 to get a test split, or score it on samples that did not train: --data DATA"
        )
    if not len(rows):
        splits = [] if items.split is None else [s for s in ("train", "val", "test") if (items.split == s).any()]
        raise LikewiseError(
            f"evaluate: the {split} split of '{items.name}' is empty; check its `split` column"
            + (f", or use --split {splits[0]}" if splits else "")
        )
    return rows


def check_input(owner: str, run: str, features: int | None, items: Items, data: str) -> None:
    """Raise unless the data has the input of the network of a run: images (`features` is None), or features of this width."""
    width = None if items.x is None else items.x.shape[1]
    if width != features:
        wants, has = ("images" if n is None else f"features of {n} numbers" for n in (features, width))
        raise LikewiseError(
            f"{owner}: the data must be like the training data of '{run}', which are {wants}, but '{data}' holds "
            f"{has}; give other data, or another run"
        )


def check_length(z: Float[torch.Tensor, "N D"], cosine: bool) -> list[float]:
    """Return the smallest and the largest norm of the embeddings; with `cosine`, raises if a norm is 0."""
    length = torch.cat([chunk.double().norm(dim=1) for chunk in z.split(max(1, 2**20 // z.shape[1]))])
    zero = (length == 0).nonzero()[:, 0]
    if cosine and len(zero):
        raise LikewiseError(
            f"evaluate: an embedding must not be all zeros to have a cosine, but {len(zero)} of {len(z)} are "
            f"(first: row {int(zero[0])}); drop them, or use --similarity euclidean with metrics per query"
        )
    return [float(length.min()), float(length.max())]


def direction_note(z: Float[torch.Tensor, "N D"]) -> str:
    """Return a note if the embeddings have nearly one direction, so that rounding decides the order of cosines; else "".

    The spread is 1 minus the squared length of the mean unit vector, over some rows of the embeddings.
    """
    some = z[:: -(-len(z) // MAX_DIRECTION_ROWS)].double()
    spread = 1 - float((some / some.norm(dim=1, keepdim=True).clamp_min(1e-150)).mean(0).square().sum())
    if spread >= MIN_DIRECTION_SPREAD or len(some) < 2:
        return ""
    return (
        f"all embeddings have nearly one direction (1 - |mean of unit vectors|^2 = {spread:.1e}): cosines are resolved to about "
        "1e-8, so rounding decides part of the ranking; use --similarity euclidean, or subtract the mean vector first"
    )


def all_relevant_note(
    owner: str,
    items: Items,
    protocol: Protocol,
    rows: Int[np.ndarray, "n"],
    relevance: RelevanceOfRows | None,
    metrics: Sequence[str],
) -> str:
    """Return a sentence about the metrics that cannot be wrong because every result is relevant; "" if there are none.

    Raises if all metrics are such. Metrics of values decide nothing either if all values are equal.
    """
    counted = [name for name in metrics if not (is_set_metric(name) or needs_triplets([name]) or needs_tree([name]))]
    if relevance is None or not counted:
        return ""
    if relevance.has_pairs:
        graded, alone = graded_rows(items, protocol, rows, relevance)
        low, high = graded.limits(alone)
        sure = low >= relevance.threshold
        counted = counted if low == high else [name for name in counted if not is_graded(name)]
    else:
        sure = len(np.unique(items.y[rows])) == 1
    if not sure or not counted:
        return ""
    if len(counted) == len([name for name in metrics if not is_set_metric(name)]):
        raise LikewiseError(
            f"{owner}: a query must have irrelevant gallery rows, but all of them are relevant by {relevance.facts['spec']} "
            f"({relevance.facts['relevant']}), so every result would be right; use other labels, another relevance or threshold"
            + (", or --no-evaluate" if owner == "train" else "")
        )
    return f"every gallery row is relevant to every query, so any embedding has the same {', '.join(counted)}"


def check_set_metrics(metrics: Sequence[str], items: Items) -> None:
    """Raise for a set metric that needs one class per sample, if samples have several labels."""
    wrong = [name for name in metrics if is_set_metric(name) and not is_label_free(name)]
    if items.label_sets is not None and wrong:
        raise LikewiseError(
            f"evaluate: '{wrong[0]}' needs one class per sample, but samples of '{items.name}' have several labels; leave it out"
        )


def check_depth(owner: Literal["evaluate", "train"], metrics: Collection[str], available: int) -> None:
    """Raise if metrics per query need more results than a query can have."""
    deepest, trains = reach(metrics).k, owner == "train"
    if deepest > available:
        raise LikewiseError(
            f"{owner}: the metrics need {deepest} results of every query, but "
            f"{'the test split has' if trains else 'there are at most'} {available}; use a smaller k in --metrics"
            + (", or --no-evaluate" if trains else "")
        )


def check_metric_names(config: Train) -> list[str]:
    """Return the metrics per query of a training; raise for a metric that does not exist or cannot select."""
    import_metrics((config.select, *config.metrics), config.allow_imports)
    per_query = [name for name in config.metrics if not is_set_metric(name)]
    for name in (config.select, *per_query):
        metric(name)
    if low_is_good(config.select):
        raise LikewiseError(f"train: --select needs a metric of which high is good, got '{config.select}'; use MAP@R")
    return per_query


def check_plan(config: Train, items: Items, protocol: Protocol) -> None:
    """Raise before training if the metrics of the settings cannot be computed on the test split after it."""
    per_query = check_metric_names(config)
    rows = protocol.rows(items, "test")
    if needs_tree((config.select, *per_query)):
        tree_of((config.select, *per_query), items, items.y[rows], "train")
    if not config.evaluate and not config.test_every:
        return
    if not per_query:
        raise LikewiseError("train: evaluation needs at least one metric per query; add R@1, or use --no-evaluate")
    is_query, in_gallery = protocol.query_gallery(items, rows)
    classes = len(np.unique(items.y[rows]))
    if classes < 2 and config.relevance is None:
        raise LikewiseError(
            f"train: the test split of '{items.name}' must hold two classes or more, got {classes}; add classes, check the "
            '`split` column, test on other images of the same classes (--protocol "SeenClasses()"), or use --no-evaluate'
        )
    if not len(rows):
        raise LikewiseError(
            f"train: the test split of '{items.name}' is empty by {spec(protocol)}: a class or label with one sample cannot be "
            "split; add samples or a `split` column, or use --no-evaluate"
        )
    check_depth("train", per_query, max_results(is_query, in_gallery))
    relevance = relevance_of(items, rows, config.relevance, trained=True, allow_imports=config.allow_imports)
    by_pairs = relevance is not None and relevance.has_pairs
    counts = not all(needs_triplets([name]) for name in per_query)
    if counts and not count_relevant_rows(items, protocol, rows, relevance).any():
        values = f" by {relevance.facts['spec']} ({relevance.facts['relevant']})" if relevance and by_pairs else ""
        cause = "the values and the threshold of the relevance, " if by_pairs else ""
        raise LikewiseError(
            f"train: in the test split of '{items.name}' no query has a relevant gallery row outside its group and "
            f"camera{values}; check {cause}`query`, `gallery`, `group`, `camera` and `split`, or use --no-evaluate"
        )
    all_relevant_note("train", items, protocol, rows, relevance, per_query)
    most = min(config.dim, len(rows))  # largest possible rank of the embeddings
    decay = [name for name in config.metrics if spectrum.knows(name)]
    measure_set(decay, torch.eye(most + 1, most), torch.arange(most + 1))


def find_leaks(items: Items, protocol: Protocol, quiet: bool) -> str:
    """Return a sentence about samples that the train and test splits share; "" if there are none."""
    with bar("check for leaks", 100, quiet=quiet) as shown:
        return describe_leaks(leaks(items, protocol, shown.reach))
