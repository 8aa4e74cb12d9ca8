"""Labels of samples that have several each: the names of a class, joined by "|" in `Items.class_name`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from likewise.data.label_sets import LABEL_SEPARATOR
from likewise.types import Items


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
    return replace(items, label_name=tuple(names), label_sets=numbered)


def labels_by_class(items: Items) -> tuple[tuple[str, ...], ...] | None:
    """Return the names of the labels of every class; None if samples have one label each."""
    names = items.label_name
    if items.label_sets is None or names is None:
        return None
    return tuple(tuple(names[label] for label in labels) for labels in items.label_sets)
