"""Numbers of the classes of new rows of an index. If rows have several labels each, a class is a distinct set of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from likewise.data.label_sets import join_labels, split_labels
from likewise.deploy.index.snapshot import Rows


def number_classes(
    rows: Rows, names: Sequence[str], labels: Mapping[str, tuple[str, ...]] | None
) -> tuple[dict[str, int], tuple[str, ...], tuple[tuple[str, ...], ...] | None]:
    """Return the number of each new name, all classes of the index with the new ones, and their labels or None.

    Args:
        names: class names of new rows.
        labels: class name -> labels, if the new rows have several labels each; otherwise a name is a class, or, in an index with
            several labels per row, labels joined by "|".
    """
    classes = list(rows.class_name)
    if rows.labels is None and labels is None:
        every = tuple(dict.fromkeys((*classes, *names)))
        return {name: number for number, name in enumerate(every)}, every, None
    sets: list[tuple[str, ...]] = [(name,) for name in classes] if rows.labels is None else list(rows.labels)
    known = {frozenset(own): number for number, own in enumerate(sets)}
    found = {}
    for name in dict.fromkeys(names):
        own = split_labels(name) if labels is None else labels[name]
        if frozenset(own) not in known:
            known[frozenset(own)] = len(classes)
            classes.append(join_labels(sorted(own)))
            sets.append(tuple(sorted(own)))
        found[name] = known[frozenset(own)]
    return found, tuple(classes), tuple(sets)
