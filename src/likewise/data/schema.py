"""Parse the raw cells of a table into the columns of `Items`. Every error names the file, the line and the cell."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.data.tabular import Codes, Sheet, distinct_cells, distinct_pairs

SPLIT_NAMES = ("train", "val", "test")
FLAG_VALUES = {"1": True, "true": True, "0": False, "false": False, "": False}
FLAG_WORDS = {*FLAG_VALUES, "yes", "no", "y", "n", "t", "f"}  # words that are meant as a flag, not as a gallery name
BOX_CORNERS = ("left", "top", "right", "bottom")
KNOWN_COLUMNS = (
    "path", "label", "label_clean", "labels", "labels_clean", "split", "query", "gallery", "class_name", "class_name_clean",
    "group", "camera", "junk", "box", *BOX_CORNERS, "weight", "coarse", "votes",
)  # fmt: skip

OTHER_COLUMNS = ("vote",)
"""Columns that look like a misspelt known name and are not: audit.csv has them."""

OTHER_FORM = {"label": "labels", "labels": "label", "label_clean": "labels_clean", "labels_clean": "label_clean"}
"""Columns of labels: a table has one label per row, or several."""

ANCESTOR_SEPARATOR = "/"
"""Between the ancestors of a class in the column coarse."""


def check_names(owner: str, file: str, names: Collection[str]) -> None:
    """Raise if a column name looks like a misspelt known name; other unknown columns are ignored."""
    for name in names:
        if name in KNOWN_COLUMNS or name in OTHER_COLUMNS:
            continue
        near = difflib.get_close_matches(name.casefold(), KNOWN_COLUMNS, n=1, cutoff=0.86)  # not 'height'
        if near and near[0] not in names and OTHER_FORM.get(near[0]) not in names:
            raise LikewiseError(
                f"{owner}: {file} has a column {name!r}; did you mean {near[0]!r}? "
                "Rename it to that, or to a name that is less similar"
            )


def without_empty_columns(sheet: Sheet) -> Sheet:
    """Return the table without its optional columns that are empty in all rows: they count as missing."""
    optional = set(KNOWN_COLUMNS) - {"path", "label"} - (set() if "label" in sheet.column else {"labels"})
    empty = {name for name, cells in sheet.column.items() if name in optional and not any(text(c) for _, c in distinct_cells(cells))}
    return dataclasses.replace(sheet, column={name: c for name, c in sheet.column.items() if name not in empty})


def optional_columns(sheet: Sheet) -> dict[str, Any]:
    """Return the optional columns under their names in `Items`; None for a column that the table does not have."""
    parsers = {
        "split": splits, "query": flags, "junk": flags, "group": groups, "camera": cameras, "weight": weights, "votes": votes,
    }  # fmt: skip
    found = {name: parse(sheet, name) if name in sheet.column else None for name, parse in parsers.items()}
    return found | galleries(sheet) | {"box": boxes(sheet)}


def words_of(sheet: Sheet, name: str) -> Sequence[str]:
    """Return a column as trimmed texts; raise if it is missing."""
    cells = sheet.need(name)
    return cells.map(text) if isinstance(cells, Codes) else [text(cell) for cell in cells]


def values_of(words: Sequence[str], parse: Callable[[str], Any], dtype: Any) -> np.ndarray:
    """Return the parsed words of a column as an array; words by code are parsed once."""
    if isinstance(words, Codes):
        return np.array([parse(word) for word in words.cells], dtype)[words.code]
    return np.array([parse(word) for word in words], dtype)


def distinct_words(words: Sequence[str]) -> set[str]:
    """Return the words that occur in a column."""
    return set(words.cells if isinstance(words, Codes) else words)


def text(cell: Any) -> str:
    """Return a cell as trimmed text; None and NaN become an empty text."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def integers(words: list[str]) -> bool:
    """Whether all words are whole numbers as Python writes them.

    '007' is a name, because it would change as a number; so is a number of more than 100 digits, because Python refuses to
    parse long ones.
    """
    return all(re.fullmatch(r"0|-?[1-9][0-9]{0,99}", word) for word in words)


def in_order(words: set[str]) -> list[str]:
    """Return labels sorted: whole numbers by value, words alphabetically."""
    return sorted(words, key=int if integers(list(words)) else None)


def label_words(sheet: Sheet, name: str) -> Sequence[str]:
    """Return a label column as text; raise if a label is empty or a fraction."""
    for row, cell in distinct_cells(sheet.need(name)):
        word = text(cell)
        if not word:
            raise LikewiseError(
                f"{sheet.owner}: every row must have a {'label in ' if name.startswith('labels') else ''}{name}, but it is empty "
                f"in {sheet.at(row)}; fill it or drop the row"
            )
        if (isinstance(cell, float) and not cell.is_integer()) or isinstance(cell, list | dict) or "\0" in word:
            raise sheet.wrong(row, f"a {name} must be a whole number or a word", cell, "correct it")
    return words_of(sheet, name)


def class_numbers(sheet: Sheet) -> tuple[np.ndarray, tuple[str, ...], np.ndarray | None]:
    """Return class numbers 0..C-1 in sorted order of the labels, class names, and the class numbers of label_clean or None."""
    given = {"label": label_words(sheet, "label")}
    if "label_clean" in sheet.column:
        given["label_clean"] = label_words(sheet, "label_clean")
    distinct = in_order(set().union(*map(distinct_words, given.values())))
    number = {label: place for place, label in enumerate(distinct)}
    names = class_names(sheet, given, distinct)
    numbered = {column: values_of(words, number.__getitem__, np.int64) for column, words in given.items()}
    return numbered["label"], names, numbered.get("label_clean")


def class_names(sheet: Sheet, given: dict[str, Sequence[str]], distinct: list[str]) -> tuple[str, ...]:
    """Return class names by class number. A class that occurs only in label_clean is named by class_name_clean."""
    first: dict[str, tuple[str, int]] = {}
    for labels, column in (("label", "class_name"), ("label_clean", "class_name_clean")):
        for row, label, cell in distinct_pairs(given.get(labels, []), sheet.column.get(column, [])):
            word = text(cell)
            if not word:
                continue
            before, where = first.setdefault(label, (word, row))
            if before != word:
                raise LikewiseError(
                    f"{sheet.owner}: a label must have one class_name, but label {label!r} is {before!r} in "
                    f"{sheet.at(where)} and {word!r} in {sheet.unit} {sheet.line[row]}; make them agree"
                )
    return tuple(first[word][0] if word in first else word for word in distinct)


def class_tree(sheet: Sheet, y: np.ndarray, class_name: tuple[str, ...]) -> dict[str, tuple[str, ...]] | None:
    """Return the ancestors of every class from the column coarse, or None; raise if a class has different ancestors.

    A cell holds the ancestors of the row's class, coarsest first, separated by `ANCESTOR_SEPARATOR`; empty: the class has none.
    """
    if "coarse" not in sheet.column:
        return None
    first: dict[str, tuple[tuple[str, ...], int]] = {}
    coarse = sheet.column["coarse"]
    labels = Codes.of(y, range(len(class_name))) if isinstance(coarse, Codes) else y.tolist()
    for row, label, cell in distinct_pairs(labels, coarse):
        above = tuple(word for part in text(cell).split(ANCESTOR_SEPARATOR) if (word := part.strip()))
        before, where = first.setdefault(class_name[label], (above, row))
        if before != above:
            raise LikewiseError(
                f"{sheet.owner}: a class must have the same coarse in all rows, but class {class_name[label]!r} has "
                f"{ANCESTOR_SEPARATOR.join(before)!r} in {sheet.at(where)} and {ANCESTOR_SEPARATOR.join(above)!r} in "
                f"{sheet.unit} {sheet.line[row]}; make them agree"
            )
    return {name: above for name, (above, _) in first.items()}


def coarse_cells(names: Iterable[str], tree: dict[str, tuple[str, ...]] | None) -> list[str] | None:
    """Return the cells of the column coarse for the class names of rows; None if there is no tree, or a cell cannot hold it."""
    if tree is None or any(ANCESTOR_SEPARATOR in word or not word.strip() for above in tree.values() for word in above):
        return None
    return [ANCESTOR_SEPARATOR.join(tree.get(name, ())) for name in names]


def splits(sheet: Sheet, name: str = "split") -> np.ndarray:
    """Return the column split; raise if a cell is not train, val, test or empty."""
    words = words_of(sheet, name)
    for row, word in distinct_cells(words):
        if word and word not in SPLIT_NAMES:
            near = "val" if word.casefold().startswith("val") else None
            near = near or next(iter(difflib.get_close_matches(word.casefold(), SPLIT_NAMES, n=1, cutoff=0.5)), None)
            guess = f"did you mean {near!r}?" if near else "use one of these"
            raise sheet.wrong(row, "split must be train, val, test or empty", word, guess)
    return values_of(words, str, "<U5")


def flags(sheet: Sheet, name: str) -> np.ndarray:
    """Return a column of flags as a mask."""
    words = words_of(sheet, name)
    for row, word in distinct_cells(words):
        if word.casefold() not in FLAG_VALUES:
            raise sheet.wrong(row, f"{name} must be 0, 1, true, false or empty", word.casefold(), "write 1 or 0")
    return values_of(words, lambda word: FLAG_VALUES[word.casefold()], bool)


def galleries(sheet: Sheet) -> dict[str, np.ndarray | None]:
    """Return the column gallery: flags in all rows, or the names of the rows' galleries (empty: in no gallery)."""
    if "gallery" not in sheet.column:
        return {"gallery": None, "gallery_name": None}
    words = words_of(sheet, "gallery")
    if all(word.casefold() in FLAG_VALUES for word in distinct_words(words)):
        return {"gallery": flags(sheet, "gallery"), "gallery_name": None}
    for row, word in distinct_cells(words):
        if word and (word.casefold() in FLAG_WORDS or re.fullmatch(r"[-+.\d]+", word)):
            rule = "gallery must be 0 or 1 in every row, or in every row a name or empty"
            raise sheet.wrong(row, rule, word, "write 1 or 0, or a word such as 'shop'")
    names = values_of(words, str, str)
    return {"gallery": names != "", "gallery_name": names}


def groups(sheet: Sheet, name: str = "group") -> np.ndarray:
    """Return group numbers: whole numbers are kept (-1 and empty: no group); other words are numbered in sorted order."""
    words = words_of(sheet, name)
    distinct = sorted(distinct_words(words) - {"", "-1"})
    if integers(distinct) and all(0 <= int(word) < 2**63 for word in distinct):
        number = {word: int(word) for word in distinct}
    else:
        number = {word: place for place, word in enumerate(distinct)}
    return values_of(words, lambda word: number.get(word, -1), np.int64)


def cameras(sheet: Sheet, name: str = "camera") -> np.ndarray:
    """Return the camera names; -1 and empty: the camera is not known."""
    return values_of(words_of(sheet, name), lambda word: "" if word == "-1" else word, str)


def votes(sheet: Sheet, name: str = "votes") -> np.ndarray:
    """Return the cells of the column votes as text, which `data.votes` reads."""
    return values_of(words_of(sheet, name), str, str)


def number(sheet: Sheet, row: int, name: str, word: str) -> float:
    """Return a cell as a number, or raise an error that names the cell."""
    try:
        return float(word)
    except ValueError:
        raise sheet.wrong(row, f"{name} must be a number", word, "correct it") from None


def weights(sheet: Sheet, name: str = "weight") -> np.ndarray:
    """Return the column weight; raise if a weight is negative or not finite."""
    values = []
    for row, cell in enumerate(sheet.column[name]):
        value = number(sheet, row, name, "nan" if cell is None else str(cell).strip())
        if not (math.isfinite(value) and value >= 0):
            raise sheet.wrong(row, f"{name} must be finite and not below 0", value, "correct it")
        values.append(value)
    return np.array(values, np.float64)


def boxes(sheet: Sheet) -> np.ndarray | None:
    """Return boxes from one column `left top right bottom` or from four columns. An empty box (whole image) becomes NaN."""
    four = [name for name in BOX_CORNERS if name in sheet.column]
    if "box" in sheet.column and len(four) == 4:
        raise LikewiseError(f"{sheet.owner}: {sheet.file} has boxes twice, as box and as four columns; keep one form")
    if "box" in sheet.column:
        cells = [box_words(cell) for cell in sheet.column["box"]]
    elif len(four) == 4:
        cells = [[text(c) for c in cell] for cell in zip(*(sheet.column[name] for name in BOX_CORNERS), strict=True)]
        cells = [cell if any(cell) else [] for cell in cells]
    else:
        return None
    return np.array([one_box(sheet, row, words) for row, words in enumerate(cells)], np.float64).reshape(-1, 4)


def box_words(cell: Any) -> list[str]:
    if isinstance(cell, (list, tuple)):
        return [text(corner) for corner in cell]
    return [word for word in re.split(r"[\s,]+", text(cell)) if word]


def one_box(sheet: Sheet, row: int, words: list[str]) -> list[float]:
    if not words:
        return [math.nan] * 4
    cell = " ".join(words)
    if len(words) != 4:
        raise sheet.wrong(row, "box must be four numbers, left top right bottom", cell, "correct it, or leave it empty")
    box = [number(sheet, row, "box", word) for word in words]
    left, top, right, bottom = box
    if not all(math.isfinite(corner) for corner in box) or left < 0 or top < 0:
        raise sheet.wrong(
            row, "box must lie inside its image", cell, "corners are pixels from the upper left, 0 or more"
        )
    if right <= left or bottom <= top:
        advice = "the order is left top right bottom, not width and height"
        raise sheet.wrong(row, "box must not be empty", cell, advice)
    return box
