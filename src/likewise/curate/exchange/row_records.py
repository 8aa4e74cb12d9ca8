"""The rows that are exchanged with other tools, columns of text and numbers with vectors if there are any, and their files."""

from __future__ import annotations

import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, write_csv
from likewise.data.label_sets import LABEL_SEPARATOR, join_labels, separator_error, split_labels

NUMBER_COLUMNS = ("score", "confidence")
"""Columns that hold a number or nothing. All other columns hold text."""

LIST_COLUMNS = ("labels",)
"""Columns that hold a list of texts: the single labels of rows that have several. Tools without lists get them joined by "|"."""

DECISION_COLUMNS = ("choice", "new_label", "reviewer", "note")
"""Columns with the decisions of people; they are not part of a table of labels."""

TEXT_COLUMNS = ("path", "label", "label_before", "split", *DECISION_COLUMNS)
"""Columns that hold one text. A list in them would become a text such as "['wren']", which is no label."""

VECTOR_NAMES = ("x", "z", "similarity")
"""Arrays of a .npz file with vectors; no column may have these names."""

CHOICE_NAMES = ("keep", "relabel", "remove", "unsure")
"""Values of `choice`, the same as those of the review page."""

NOT_UTF8 = "bytes that are not UTF-8"
"""What is wrong with a text that has lone surrogates, as Python reads such bytes in names of files."""


@dataclass(frozen=True, eq=False)
class Records:
    """Rows of a data set, column by column.

    Columns that several tools know: `path` (absolute), `label` (class name), `split`; `labels` (a list of the single labels) if
    rows have several, then `label` is their names joined by "|"; from an audit `score`, `state`,
    `suggested`, `confidence`, `reason`; from a tool with decisions `choice`, `new_label`, `reviewer`, `note`. Other columns are
    copied.
    """

    row: Int[np.ndarray, "N"]  # rows in the data set, all different; with decisions, different for every reviewer
    columns: dict[str, list]  # name -> N cells: text; for `NUMBER_COLUMNS` a number or None, for `LIST_COLUMNS` a list
    x: Float[np.ndarray, "N D"] | None = None  # vectors
    similarity: str = "cosine"  # of the vectors: cosine or euclidean
    root: str = ""  # folder of the images
    is_numbered: bool = False  # the source has no rows: `row` only counts, and identifies nothing

    def __len__(self) -> int:
        return len(self.row)

    @property
    def classes(self) -> list[str]:
        """Return all labels and suggested labels, sorted; the single labels if rows have several."""
        words = {word for name in ("label", "suggested") for word in self.columns.get(name, ()) if word}
        return sorted(words if "labels" not in self.columns else {one for word in words for one in split_labels(word)})

    def take(self, places: Sequence[int]) -> Records:
        """Return some of the records, in this order."""
        at = list(places)
        columns = {name: [cells[place] for place in at] for name, cells in self.columns.items()}
        return replace(self, row=self.row[at], columns=columns, x=None if self.x is None else self.x[at])

    def plain_columns(self) -> dict[str, list]:
        """Return the columns for a tool without lists: lists of labels are joined, missing numbers are empty texts."""
        return {name: [plain(cell) for cell in cells] for name, cells in self.columns.items()}

    def lines(self) -> Iterable[dict[str, Any]]:
        """Yield every record as a dict: `row` and all columns."""
        for place, row in enumerate(self.row.tolist()):
            yield {"row": row} | {name: cells[place] for name, cells in self.columns.items()}


def from_cells(cells: Mapping[str, Sequence], owner: str, x: Any = None, similarity: str = "cosine") -> Records:
    """Return records from the cells that a tool returned; raise if they are not records.

    Args:
        cells: column -> cells. Without a column `row`, the rows are numbered from 0, and cannot be received into an audit by it.
        owner: name of the tool at the start of errors.
        x: vectors of the rows; anything that numpy can convert to float32.
    """
    count = len(next(iter(cells.values()))) if cells else 0 if x is None else len(x)
    if not count:
        raise LikewiseError(f"{owner}: the source must hold at least one row, got none; check its name")
    row = [whole_number(cell, owner) for cell in cells.get("row", range(count))]
    keys = Counter(zip(row, cells.get("reviewer", [""] * count)))
    if len(keys) != count:
        (twice, _), _ = keys.most_common(1)[0]
        raise LikewiseError(f"{owner}: every row must occur once, but row {twice} occurs twice; remove one of them")
    columns = {
        name: [read_cell(cell, name, owner) for cell in column] for name, column in cells.items() if name != "row"
    }
    if "labels" in columns and "label" not in columns:
        columns["label"] = [join_labels(labels) for labels in columns["labels"]]
    x = None if x is None else vectors(x, count, owner)
    return Records(np.asarray(row, np.int64), columns, x, similarity, is_numbered="row" not in cells)


def vectors(x: Any, count: int, owner: str) -> Float[np.ndarray, "N D"]:
    """Return vectors as an array of float32; raise unless there are `count` of one length, all finite."""
    try:
        array = np.asarray(x, np.float32)
    except (ValueError, TypeError):
        raise LikewiseError(
            f"{owner}: all vectors must have the same dimension, got several; send vectors of one network to one place"
        ) from None
    if array.ndim != 2 or len(array) != count or not array.shape[1]:
        raise LikewiseError(f"{owner}: there must be one vector for each of {count} rows, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise LikewiseError(f"{owner}: vectors must be finite, but some hold NaN or infinity; remove these rows")
    return array


def class_of(chosen: list[str], given: str) -> str:
    """Return the labels that a person chose as the name of a class; the given name if these are its labels."""
    if len(chosen) < 2:
        return "".join(chosen)
    return given if sorted(chosen) == sorted(split_labels(given)) else join_labels(sorted(chosen))


def check_source(file: Path, owner: str, kind: str) -> None:
    """Raise unless the source is a file. A folder, a device or a pipe is none; `kind`: what it must be, for the error."""
    if not file.is_file():
        raise LikewiseError(f"{owner}: the source must be {kind}, got '{file}'; check the path")


def check_free(files: Iterable[Path], owner: str, replace: bool) -> None:
    """Raise if a file exists already, unless it may be replaced. A folder is never replaced."""
    for file in files:
        if file.is_dir():
            raise LikewiseError(f"{owner}: '{file}' must be a new file, got a folder; choose another name")
        if not replace and (file.exists() or file.is_symlink()):
            raise LikewiseError(
                f"{owner}: '{file}' must be a new file, but it exists; choose another name, or replace it with --replace"
            )


def image_root(records: Records) -> str:
    """Return the folder that contains all images."""
    paths = records.columns["path"]
    root = os.path.join(records.root, "")
    if records.root and all(path.startswith(root) for path in paths):
        return records.root
    try:
        return os.path.commonpath(map(os.path.dirname, paths))
    except ValueError:  # absolute and relative paths, or several drives
        raise LikewiseError(
            "send: all images must be below one folder, got absolute and relative paths; give their folder by --root"
        ) from None


def xml_problem(text: str) -> str:
    """Return what of a text XML cannot hold; empty: XML can hold it."""
    if any(0xD800 <= ord(sign) < 0xE000 for sign in text):
        return NOT_UTF8
    other = any((ord(sign) < 32 and sign not in "\t\n") or ord(sign) in (0xFFFE, 0xFFFF) for sign in text)
    return "control characters" if other else ""


def check_utf8(records: Records, owner: str) -> None:
    """Raise if a text is not UTF-8, for a tool that cannot hold other bytes. Names of files and folders may have any bytes."""
    for name, cells in records.columns.items():
        for row, cell in zip(records.row.tolist(), cells):
            for text in cell if isinstance(cell, list) else [cell]:
                if isinstance(text, str) and not text.isascii() and xml_problem(text) == NOT_UTF8:
                    raise LikewiseError(
                        f"{owner}: all texts must be UTF-8, but {name} of row {row} is {text!r}; rename the file or folder, or "
                        "choose --to csv"
                    )


def whole_number(cell: Any, owner: str) -> int:
    """Return a row number; raise if a cell is not a whole number from 0."""
    text = as_text(cell)
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise LikewiseError(
            f"{owner}: row must be a whole number from 0, got {cell!r}; correct the column row, or receive what "
            "`likewise send` wrote"
        )
    return int(text)


def read_cell(cell: Any, name: str, owner: str) -> Any:
    """Return a cell as its column holds it: a number or None, a list of texts, or text."""
    if name in NUMBER_COLUMNS:
        return number(cell, name, owner)
    is_list = isinstance(cell, list | tuple | np.ndarray)
    words = [as_text(one) for one in cell] if is_list and name in LIST_COLUMNS else [as_text(cell)]
    if (name in TEXT_COLUMNS and (is_list or isinstance(cell, dict | bytes))) or any("\0" in word for word in words):
        raise LikewiseError(
            f"{owner}: {name} must be one text without NUL, got {cell!r:.200}; correct it in the source"
        )
    if name not in LIST_COLUMNS:
        return words[0]
    if is_list and (wrong := next((word for word in words if LABEL_SEPARATOR in word), None)) is not None:
        raise LikewiseError(separator_error(owner, wrong, "labels"))
    return words if is_list else list(split_labels(words[0])) if words[0] else []


def arrow_kind(column: str):
    """Return the type of a column: numbers, lists of texts, or texts."""
    import pyarrow as pa

    return (
        pa.float64() if column in NUMBER_COLUMNS else pa.list_(pa.string()) if column in LIST_COLUMNS else pa.string()
    )


def plain(cell: Any) -> Any:
    """Return a cell for a tool without lists."""
    return "" if cell is None else join_labels(cell) if isinstance(cell, list) else cell


def number(cell: Any, name: str, owner: str) -> float | None:
    """Return a cell as a number; None for an empty cell."""
    if cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)):
        return None
    try:
        value = float(cell)
        if math.isfinite(value):
            return value
    except (ValueError, TypeError):
        pass
    raise LikewiseError(f"{owner}: {name} must be a number or empty, got {cell!r}; correct it in the source")


def as_text(cell: Any) -> str:
    """Return a cell as text: empty for None and NaN, whole numbers without a fraction."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def write_vectors(records: Records, file: Path) -> None:
    """Write records with vectors as .npz, which `evaluate`, `audit` and `search` read."""
    assert records.x is not None
    arrays = {"x": records.x, "similarity": np.asarray(records.similarity)}
    arrays |= {} if records.is_numbered else {"row": records.row}
    joined = ("label",) if "labels" in records.columns else ()  # a file has label or labels
    for name, cells in records.columns.items():
        if name in (*DECISION_COLUMNS, *joined):
            continue
        if name in VECTOR_NAMES or "\0" in name or name != name.encode("utf-8", "replace").decode():
            raise LikewiseError(
                f"receive: a column beside vectors must not be called {', '.join(VECTOR_NAMES)} or hold NUL, got {name!r}; "
                "rename it in the source"
            )
        if name in NUMBER_COLUMNS:
            arrays[name] = np.asarray([math.nan if cell is None else cell for cell in cells], np.float64)
        else:
            arrays[name] = np.asarray([plain(cell) for cell in cells], dtype=str)
    with atomic_write(file) as aside, zipfile.ZipFile(aside, "w") as out:
        for name, array in arrays.items():  # not numpy.savez, whose own arguments are names that a column may have
            with out.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_labels(records: Records, file: Path, owner: str) -> int:
    """Write records as a CSV table with `path` and `label`, which `train` reads, and return the number of its lines.

    Vectors are left out. Decisions are applied: rows to remove are left out, and rows to relabel have their new label.
    """
    if len(set(records.row.tolist())) != len(records):
        raise LikewiseError(
            f"{owner}: a table must have one decision per row, got those of several reviewers; receive them into the audit, and "
            "export the corrected table from `likewise review`"
        )
    several = "labels" in records.columns  # the table has label or labels
    rows = () if records.is_numbered else ("row",)
    names = [name for name in records.columns if name not in DECISION_COLUMNS and not (several and name == "label")]
    lines = []
    for one in records.lines():
        choice = one.get("choice", "")
        one |= {"labels" if several else "label": one["new_label"]} if choice == "relabel" else {}
        if choice != "remove":
            lines.append([plain(one[name]) for name in (*names, *rows)])
    write_csv(file, [*names, *rows], lines)
    return len(lines)
