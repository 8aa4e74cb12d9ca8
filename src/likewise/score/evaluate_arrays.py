"""Score embeddings in a file or in arrays, with labels and relevance of several forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import Relevance
from likewise.core.devices import bytes_of, choose_device
from likewise.core.distributed.process_group import joined, world
from likewise.core.files import check_output_path, write_json
from likewise.core.settings import Evaluate, check, default_metrics
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.dataset import protocol_for
from likewise.data.features import as_array, check_x, from_arrays, read_embeddings
from likewise.data.label_sets import LABEL_SEPARATOR, separator_error, set_names
from likewise.data.relevance import GivenValues
from likewise.data.schema import in_order, text
from likewise.data.vector_files import compact
from likewise.runs.embeddings import origin
from likewise.runs.scores import write_per_query
from likewise.score.checks import check_length, find_leaks, per_query_file, rows_of
from likewise.score.metrics import import_metrics, is_set_metric
from likewise.score.retrieve import RelevanceOfRows, Scoring, read_pairs, relevance_of, with_facts
from likewise.score.score_table import Scored
from likewise.score.scoring import score_all, with_tree


def evaluate_embeddings(config: Evaluate, file: Path, device: torch.device) -> dict:
    """Return the scores of a file of embeddings, as in scores.json; with `config.per_query`, also write a parquet file."""
    out = check_for_embeddings(config, f"'{file}' is a file of embeddings")
    items = read_embeddings(str(file), config.labels)
    similarity = config.similarity or origin(file).get("similarity", "cosine")
    return score_items(config, items, f"'{file}'", similarity, device, out)


def evaluate_arrays(config: Evaluate, z, y, relevance=None) -> Scored:
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
        return Scored(result)


def check_for_embeddings(config: Evaluate, what: str) -> Path | None:
    """Return the file for scores per query, if any. Raises for settings that need a run; `what` begins the error."""
    for name, usual in (("data", None), ("root", None), ("checkpoint", "best")):
        if getattr(config, name) != usual:
            raise LikewiseError(f"evaluate: {what}, but --{name} needs a run; drop --{name}")
    import_metrics(config.metrics, config.allow_imports)
    out = per_query_file(config)
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
    whole = any(map(is_set_metric, config.metrics))  # they compute with all embeddings at once, a ranking with blocks
    x = torch.as_tensor(compact(items.x, rows))
    e = Embedded(x.float() if whole else x, torch.as_tensor(items.y[rows]), torch.as_tensor(rows))
    length = check_length(e.z, similarity == "cosine" or whole)
    judged = relevance_of_rows(relevance, config.relevance, items, rows, config.allow_imports)
    metrics = default_metrics(config.metrics, judged and judged.source.gives)
    result, scores, found = score_all(e, Scoring(
        items, protocol, metrics, similarity, device, config.quiet, bytes_of(config.memory),
        read_pairs(config.exclude, items), judged, review=config.correct_test_labels, sample=config.queries,
    ))  # fmt: skip
    if out and world()[0] == 0:
        assert found is not None
        write_per_query(out, scores, found, e, items)
    if config.split == "test" and (items.split == "train").any():
        result["leaks"] = find_leaks(items, protocol, config.quiet)
    return result | {"length": length}


def items_of_arrays(z: Any, y: Any, name: str = "the arrays") -> Items:
    """Return vectors (N, F) in memory as items. Rows with exactly one label each are plain single-label data.

    Args:
        y: N labels; or several for each row: N lists of labels, or a matrix (N, L) of 0 and 1.
    """
    sets = label_lists(y)
    if sets is None:
        return from_arrays(z, y, name)
    x = check_x(as_array(z), name)
    empty = [row for row, labels in enumerate(sets) if not labels]
    if len(sets) != len(x) or empty:
        what = f"row {empty[0]} has none" if empty else f"got {len(x)} vectors and {len(sets)} sets of labels"
        raise LikewiseError(
            f"evaluate: every vector must have at least one label, but {what}; add labels, or drop the row"
        )
    if all(len(labels) == 1 for labels in sets):
        return from_arrays(x, [str(label) for (label,) in sets], name)
    names = tuple(in_order({label for labels in sets for label in labels}))
    number = {label: place for place, label in enumerate(names)}
    numbers = [tuple(sorted(number[label] for label in labels)) for labels in sets]
    used = sorted(set(numbers))
    place = {one: c for c, one in enumerate(used)}
    y = np.array([place[one] for one in numbers])
    return Items(name, y, set_names(used, names), x=x, label_name=names, label_sets=tuple(used))


def label_lists(y: Any) -> list[set[str]] | None:
    """Return the set of labels of every row, as text; None if there is one label per row."""
    if (rows := listed_rows(y)) is not None:
        return [labels_of(row, number) for number, row in enumerate(rows)]
    given = as_array(y)
    if given.ndim != 2:
        return None
    if not np.isin(given, (0, 1)).all():
        raise LikewiseError(
            f"evaluate: a matrix of labels must hold 0 and 1, one column per label, got {given.min()} to {given.max()}; pass one "
            "label per row, or a list of labels for each row"
        )
    return [set(map(str, np.flatnonzero(row).tolist())) for row in given]


def listed_rows(y: Any) -> list | None:
    """Return the list of labels of every row: of lists, of a pandas column of lists, or of a matrix of words. None: no lists."""
    rows = list(y) if isinstance(y, list | tuple) else None
    if (
        rows is None
        and (given := as_array(y)).dtype.kind in "OUS"
        and not (given.ndim == 2 and np.isin(given, (0, 1)).all())
    ):
        rows = given.tolist()
    lists = [isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows or ()]
    if rows is None or not any(lists):
        return None
    if not all(lists):
        raise LikewiseError(
            f"evaluate: every row must have a list of labels, or every row one label, but row {lists.index(False)} has one label "
            f"and row {lists.index(True)} a list; make each a list"
        )
    same = len({len(row) for row in rows}) == 1
    if same and all(isinstance(row, np.ndarray) and row.dtype.kind in "biuf" for row in rows):
        return None  # the rows of a matrix
    if same and len(rows[0]) > 1 and all(label in (0, 1) for row in rows for label in row):
        raise LikewiseError(
            "evaluate: lists of 0 and 1 of one length may be labels or a matrix; pass the matrix as an array: np.array(y)"
        )
    return rows


def labels_of(row: Iterable, number: int) -> set[str]:
    """Return the labels of a row as text; raises for a label that is empty or holds the separator of labels."""
    words = {text(label.item() if isinstance(label, np.generic) else label) for label in row}
    bad = next((word for word in words if not word or LABEL_SEPARATOR in word), None)
    if bad is None:
        return words
    if not bad:
        raise LikewiseError(
            f"evaluate: a label must not be empty, but row {number} has None, NaN or an empty text among its labels; leave it out"
        )
    raise LikewiseError(separator_error("evaluate", bad, f"row {number}"))


def relevance_of_rows(
    given: Any, spec: str | None, items: Items, rows: Int[np.ndarray, "n"], allow_imports: bool
) -> RelevanceOfRows | None:
    """Return the relevance of some rows: `given`, or that of the spec; see `relevance_of`.

    Args:
        given: a `Relevance`, or a matrix (n, n) of values for the rows, NaN where they are not known; None: the spec counts.
    """
    if given is None:
        return relevance_of(items, rows, spec, allow_imports=allow_imports)
    if not isinstance(given, Relevance):
        numbers = as_array(given)
        if numbers.dtype.kind not in "biuf":
            raise LikewiseError(
                f"evaluate: a relevance must be a matrix of numbers, got the type {numbers.dtype}; convert it with .astype(float)"
            )
        values = torch.as_tensor(numbers)
        if values.shape != (len(rows), len(rows)):
            raise LikewiseError(
                f"evaluate: a relevance must be a matrix with a row and a column for each of the {len(rows)} embeddings, got "
                f"shape {tuple(values.shape)}"
            )
        given = GivenValues(values.float())
        given.by = "sample"
    elif isinstance(given, GivenValues):
        given = by_row_or_class(given, items, rows)
    return with_facts(given, given.threshold, items, rows, f"{type(given).__name__}(...)")


def by_row_or_class(given: GivenValues, items: Items, rows: Int[np.ndarray, "n"]) -> GivenValues:
    """Return ready values with ids that are rows, if there is a value for each, otherwise classes. Raises if none fits."""
    fits = {"row": given.ids == len(rows), "class": given.ids == items.classes}
    if given.by == "sample" or not fits["row"]:
        if given.by == "class" and not fits["class"]:
            raise LikewiseError(
                f"evaluate: GivenValues must have a row and a column for each of the {len(rows)} embeddings, or for each of the "
                f"{items.classes} classes, got {given.ids}; make it from the evaluated data"
            )
        return given
    if fits["class"] and not np.array_equal(items.y[rows], np.arange(len(rows))):
        raise LikewiseError(
            f"evaluate: GivenValues may be by row or by class, because there are {len(rows)} of both; pass the matrix itself, "
            "which is by row, or order the rows by class"
        )
    by_row = GivenValues(given.values, given.threshold)
    by_row.by = "sample"
    return by_row
