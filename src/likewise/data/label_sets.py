"""Samples with several labels: distinct sets of labels are classes, and pairs (sample, label) list them one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.types import Items

LABEL_SEPARATOR = "|"
"""Between the labels of a sample in the column labels, and in the name of their class."""


def separator_error(owner: str, label: str, where: str) -> str:
    """Return the error of a label in a list that holds the separator of labels."""
    return (
        f"{owner}: '{LABEL_SEPARATOR}' separates labels, so it cannot be in one, got {label!r} in {where}; list the labels "
        "separately, or write another character"
    )


def set_names(sets: Iterable[Sequence[int]], label_name: Sequence[str]) -> tuple[str, ...]:
    """Return the class name of every set: the names of its labels, joined."""
    return tuple(LABEL_SEPARATOR.join(label_name[label] for label in one) for one in sets)


def label_table(label_sets: Sequence[Sequence[int]], labels: int) -> Bool[np.ndarray, "S L"]:
    """Return whether each set has each label."""
    table = np.zeros((len(label_sets), labels), bool)
    for number, one in enumerate(label_sets):
        table[number, list(one)] = True
    return table


def sample_labels(items: Items, y: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "P"], Int[np.ndarray, "P"]]:
    """Return all pairs (sample, label) of samples of these classes, by sample: position in `y`, and number of the label.

    If the data has single labels, the labels are the classes.
    """
    if items.label_sets is None:
        return np.arange(len(y)), np.asarray(y, np.int64)
    size = np.array([len(one) for one in items.label_sets])
    flat = np.concatenate([np.asarray(one, np.int64) for one in items.label_sets])
    start = (np.cumsum(size) - size)[y]
    sample = np.repeat(np.arange(len(y)), size[y])
    first = np.cumsum(size[y]) - size[y]
    return sample, flat[start[sample] + np.arange(len(sample)) - first[sample]]


def with_labels(
    items: Items, rows: Int[np.ndarray, "n"], sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"]
) -> Items:
    """Return the data with other labels in these rows. Sets that did not exist become classes behind the others.

    Args:
        sample: position in `rows` of every pair (sample, label); every sample has at least one.
        label: number of the label of every pair.
    """
    assert items.label_sets is not None and items.label_name is not None
    order = np.lexsort((label, sample))
    edges = np.cumsum(np.bincount(sample, minlength=len(rows)))[:-1]
    sets = [tuple(one.tolist()) for one in np.split(label[order], edges)]
    number = {one: place for place, one in enumerate(items.label_sets)}
    y = items.y.copy()
    y[rows] = [number.setdefault(one, len(number)) for one in sets]
    return dataclasses.replace(items, y=y, label_sets=tuple(number), class_name=set_names(number, items.label_name))


def split_labels(name: str) -> tuple[str, ...]:
    """Return the labels of a joined name, each once, in their order; the name itself if nothing else is left of it."""
    found = tuple(dict.fromkeys(word for part in name.split(LABEL_SEPARATOR) if (word := part.strip())))
    return found or (name,)


def join_labels(labels: Sequence[str]) -> str:
    """Return the name of a class that is a set of labels."""
    return LABEL_SEPARATOR.join(labels)


def with_label_sets(items: Items) -> Items:
    """Return items whose classes are sets of labels, read from the joined class names."""
    sets = [split_labels(name) for name in items.class_name]
    names = sorted({label for labels in sets for label in labels})
    number = {name: place for place, name in enumerate(names)}
    numbered = tuple(tuple(sorted(number[label] for label in labels)) for labels in sets)
    return dataclasses.replace(items, label_name=tuple(names), label_sets=numbered)


def labels_by_class(items: Items) -> tuple[tuple[str, ...], ...] | None:
    """Return the names of the labels of every class; None if samples have one label each."""
    names = items.label_name
    if items.label_sets is None or names is None:
        return None
    return tuple(tuple(names[label] for label in labels) for labels in items.label_sets)
