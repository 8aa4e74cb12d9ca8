"""Raw cells of a sheet -> the columns of `Items`. Every error names the file, the line and the cell."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from likewise.data.tabular import Sheet
from likewise.errors import LikewiseError

SPLITS = ("train", "val", "test")
FLAGS = {"1": True, "true": True, "0": False, "false": False, "": False}
YES_OR_NO = {*FLAGS, "yes", "no", "y", "n", "t", "f"}  # whoever writes these means a flag, not a name
CORNERS = ("left", "top", "right", "bottom")
KNOWN = (
    "path", "label", "label_clean", "split", "query", "gallery", "class_name", "class_name_clean", "group", "box", *CORNERS,
    "weight",
)  # fmt: skip


def check_names(owner: str, file: str, names: Collection[str]) -> None:
    """A column that looks like a slip of a known name is an error; others are the user's own and are left alone."""
    for name in names:
        if name in KNOWN:
            continue
        near = difflib.get_close_matches(name.casefold(), KNOWN, n=1, cutoff=0.86)  # height is not weight
        if near and near[0] not in names:
            raise LikewiseError(
                f"{owner}: {file} has a column {name!r}; did you mean {near[0]!r}? "
                "Rename it, or give it a name that is not so close"
            )


def optional_columns(sheet: Sheet) -> dict[str, Any]:
    """The columns beyond path and label, None where the sheet has none, under their names in `Items`."""
    return {
        "split": splits(sheet),
        "query": flags(sheet, "query"),
        **galleries(sheet),
        "group": groups(sheet),
        "box": boxes(sheet),
        "weight": weights(sheet),
    }


def text(cell: Any) -> str:
    """A cell as trimmed text; a missing one, whichever way it is missing, is empty."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def integers(words: list[str]) -> bool:
    """Whether all are whole numbers as Python writes them; '007' is a name, for it would not survive as a number, and so is
    one of more than 100 digits: Python refuses to read long ones."""
    return all(re.fullmatch(r"0|-?[1-9][0-9]{0,99}", word) for word in words)


def in_order(words: set[str]) -> list[str]:
    """Labels sorted: whole numbers by value, words by their characters."""
    return sorted(words, key=int if integers(list(words)) else None)


def label_words(sheet: Sheet, name: str) -> list[str]:
    cells = sheet.need(name)
    words = [text(cell) for cell in cells]
    for row, (cell, word) in enumerate(zip(cells, words, strict=True)):
        if not word:
            raise LikewiseError(
                f"{sheet.owner}: every row must have a {name}, and it is empty in {sheet.at(row)}; "
                "fill it or drop the row"
            )
        if isinstance(cell, float) and not cell.is_integer():
            raise LikewiseError(
                f"{sheet.owner}: a {name} must be a whole number or a word, got {cell!r} in {sheet.at(row)}; correct it"
            )
    return words


def class_numbers(sheet: Sheet) -> tuple[np.ndarray, tuple[str, ...], np.ndarray | None]:
    """Class numbers 0..C-1 in sorted order of the labels, class names, and the class numbers of label_clean."""
    given = {"label": label_words(sheet, "label")}
    if "label_clean" in sheet.column:
        given["label_clean"] = label_words(sheet, "label_clean")
    distinct = in_order(set().union(*given.values()))
    number = {label: place for place, label in enumerate(distinct)}
    names = class_names(sheet, given, distinct)
    coded = {column: np.array([number[word] for word in words], np.int64) for column, words in given.items()}
    return coded["label"], names, coded.get("label_clean")


def class_names(sheet: Sheet, given: dict[str, list[str]], distinct: list[str]) -> tuple[str, ...]:
    """By class number. A class that only label_clean still knows is named in class_name_clean."""
    first: dict[str, tuple[str, int]] = {}
    for labels, column in (("label", "class_name"), ("label_clean", "class_name_clean")):
        for row, (label, cell) in enumerate(zip(given.get(labels, []), sheet.column.get(column, []))):
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


def splits(sheet: Sheet) -> np.ndarray | None:
    if "split" not in sheet.column:
        return None
    words = [text(cell) for cell in sheet.column["split"]]
    for row, word in enumerate(words):
        if word and word not in SPLITS:
            near = "val" if word.casefold().startswith("val") else None
            near = near or next(iter(difflib.get_close_matches(word.casefold(), SPLITS, n=1, cutoff=0.5)), None)
            guess = f"; did you mean {near!r}?" if near else "; use one of these"
            raise LikewiseError(
                f"{sheet.owner}: split must be train, val, test or empty, got {word!r} in {sheet.at(row)}{guess}"
            )
    return np.array(words, "<U5")


def flags(sheet: Sheet, name: str) -> np.ndarray | None:
    if name not in sheet.column:
        return None
    words = [text(cell).casefold() for cell in sheet.column[name]]
    for row, word in enumerate(words):
        if word not in FLAGS:
            raise LikewiseError(
                f"{sheet.owner}: {name} must be 0, 1, true, false or empty, got {word!r} in {sheet.at(row)}; "
                "write 1 or 0"
            )
    return np.array([FLAGS[word] for word in words], bool)


def galleries(sheet: Sheet) -> dict[str, np.ndarray | None]:
    """The column gallery: a flag in every row, or the name of the row's gallery (empty: in none)."""
    words = [text(cell) for cell in sheet.column.get("gallery", [])]
    if all(word.casefold() in FLAGS for word in words):
        return {"gallery": flags(sheet, "gallery"), "gallery_name": None}
    for row, word in enumerate(words):
        if word and (word.casefold() in YES_OR_NO or re.fullmatch(r"[-+.\d]+", word)):
            raise LikewiseError(
                f"{sheet.owner}: gallery must be 0 or 1 in every row, or in every row a name or empty, got {word!r} in "
                f"{sheet.at(row)}; write 1 or 0, or a word such as 'shop'"
            )
    names = np.array(words, dtype=str)
    return {"gallery": names != "", "gallery_name": names}


def groups(sheet: Sheet) -> np.ndarray | None:
    """Whole numbers stay what they are (-1 and empty: no group); other words are numbered in sorted order."""
    if "group" not in sheet.column:
        return None
    words = [text(cell) for cell in sheet.column["group"]]
    distinct = sorted(set(words) - {"", "-1"})
    if integers(distinct) and all(0 <= int(word) < 2**63 for word in distinct):
        number = {word: int(word) for word in distinct}
    else:
        number = {word: place for place, word in enumerate(distinct)}
    return np.array([number.get(word, -1) for word in words], np.int64)


def number(sheet: Sheet, row: int, name: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise LikewiseError(
            f"{sheet.owner}: {name} must be a number, got {word!r} in {sheet.at(row)}; correct it"
        ) from None


def weights(sheet: Sheet) -> np.ndarray | None:
    if "weight" not in sheet.column:
        return None
    values = []
    for row, cell in enumerate(sheet.column["weight"]):
        value = number(sheet, row, "weight", "nan" if cell is None else str(cell).strip())
        if not (math.isfinite(value) and value >= 0):
            raise LikewiseError(
                f"{sheet.owner}: weight must be finite and not below 0, got {value:g} in {sheet.at(row)}; correct it"
            )
        values.append(value)
    return np.array(values, np.float64)


def boxes(sheet: Sheet) -> np.ndarray | None:
    """One cell `left top right bottom`, or four columns of these names. All empty = the whole picture, NaN."""
    four = [name for name in CORNERS if name in sheet.column]
    if "box" in sheet.column and len(four) == 4:
        raise LikewiseError(f"{sheet.owner}: {sheet.file} gives boxes twice, as box and as four columns; keep one")
    if "box" in sheet.column:
        cells = [box_words(cell) for cell in sheet.column["box"]]
    elif len(four) == 4:
        cells = [[text(c) for c in cell] for cell in zip(*(sheet.column[name] for name in CORNERS), strict=True)]
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
    if len(words) != 4:
        raise LikewiseError(
            f"{sheet.owner}: box must be four numbers, left top right bottom, got {' '.join(words)!r} in "
            f"{sheet.at(row)}; correct it, or leave it empty for the whole picture"
        )
    box = [number(sheet, row, "box", word) for word in words]
    left, top, right, bottom = box
    if not all(math.isfinite(corner) for corner in box) or left < 0 or top < 0:
        raise LikewiseError(
            f"{sheet.owner}: box must lie inside its picture, got {' '.join(words)!r} in {sheet.at(row)}; "
            "corners count in pixels from the upper left, 0 and up"
        )
    if right <= left or bottom <= top:
        raise LikewiseError(
            f"{sheet.owner}: box must hold something, got {' '.join(words)!r} in {sheet.at(row)}; "
            "the order is left top right bottom, not width and height"
        )
    return box
