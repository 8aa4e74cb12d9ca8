"""Labels of the rows of an index: numbers of the classes of new rows, and a filter of rows by their labels.

If rows have several labels each, a class is a distinct set of labels. A filter names labels that must be present, and labels
that must not:

    red & !striped            rows with the label red and without the label striped
    "R & B" & !"a ""b"" c"    a label in double quotes may hold any sign; a quote inside it is written twice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from likewise.core.errors import LikewiseError, nearest_name
from likewise.data.label_sets import join_labels, split_labels
from likewise.deploy.index.stored_rows import Rows


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


MAX_FILTER_LETTERS = 4000
"""Longest text of a filter."""


class LabelFilter(NamedTuple):
    """Labels that a row must have, and labels that it must not have."""

    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()


def parse_filter(text: str) -> LabelFilter:
    """Return the labels of a filter such as `red & !striped`; raise if it cannot be read."""
    terms: dict[bool, list[str]] = {True: [], False: []}
    for part in split_terms(text):
        term = part.strip()
        is_wanted = not term.startswith("!")
        label = label_of_term(term if is_wanted else term[1:].strip())
        if not label or len(text) > MAX_FILTER_LETTERS:
            raise LikewiseError(
                f"search: a filter must be labels joined by &, with ! before a label that must not be there, got {text[:200]!r}; "
                "write it as 'red & !striped', and a label that holds & or a quote, or begins with !, in double quotes"
            )
        terms[is_wanted].append(label)
    both = LabelFilter(tuple(dict.fromkeys(terms[True])), tuple(dict.fromkeys(terms[False])))
    if twice := sorted(set(both.must) & set(both.must_not)):
        raise LikewiseError(
            f"search: a filter must not hold a label with and without !, got {twice[0]!r}; drop one of them"
        )
    return both


def split_terms(text: str) -> list[str]:
    """Return the parts of a text between the signs & that are not in double quotes."""
    parts, in_quotes = [""], False
    for sign in text:
        in_quotes ^= sign == '"'
        if sign == "&" and not in_quotes:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def label_of_term(term: str) -> str:
    """Return the label of a term without its !: plain, or in double quotes; "" if it cannot be read."""
    if len(term) > 1 and term[0] == term[-1] == '"':
        inner = term[1:-1].replace('""', "\0")
        return "" if '"' in inner else inner.replace("\0", '"')
    return "" if '"' in term or term.startswith("!") else term


def allowed_rows(rows: Rows, wanted: LabelFilter) -> Bool[np.ndarray, "N"]:
    """Return a mask of the rows that are here and pass the filter; raise for a label that the index does not know.

    With one label per row, the label is the name of the class.
    """
    number = {name: place for place, name in enumerate(rows.label_names)}
    for name in (*wanted.must, *wanted.must_not):
        if name not in number:
            raise LikewiseError(
                f"search: a filter must name labels of the index, got {name!r}{nearest_name(name, number)} A label that holds & "
                "or begins with ! is written in double quotes"
            )
    must, must_not = ({number[name] for name in names} for names in wanted)
    passes = [must <= labels and not must_not & labels for labels in map(set, rows.label_numbers)]
    return rows.here & np.asarray(passes, bool)[rows.table["label"]]
