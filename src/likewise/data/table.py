"""Read and write items as a table with one line per image: CSV or Parquet."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from likewise.core.errors import nearest_name
from likewise.core.files import atomic_write, text_column, write_csv
from likewise.core.types import Items, LikewiseError
from likewise.core.vectors import in_memory
from likewise.data.images import drop, file_of
from likewise.data.label_sets import LABEL_SEPARATOR, label_fields, set_names
from likewise.data.schema import (
    KNOWN_COLUMNS,
    OTHER_FORM,
    check_names,
    class_tree,
    coarse_cells,
    optional_columns,
    text,
    without_empty_columns,
)
from likewise.data.tabular import Sheet, read_sheet

PATH_ALIASES = (
    "file", "filename", "file_name", "filepath", "file_path", "fname", "image", "images", "image_path", "image_file",
    "image_name", "img", "img_path", "photo", "url",
)  # fmt: skip
LABEL_ALIASES = (
    "class", "classes", "class_id", "class_label", "category", "category_id", "target", "y", "species", "identity",
    "id", "name", "class_name",
)  # fmt: skip
"""Frequent names of the columns path and label in tables of others, likely ones first; an error suggests them."""


def read_table(file: str, root: str | None = None, columns: dict[str, str] | None = None) -> Items:
    """Read `path,label[,split][,query][,gallery][,class_name][,group][,camera][,junk][,box][,weight][,coarse][,votes]
    [,label_clean][,class_name_clean]`.

    Labels are whole numbers or words; they become class numbers in sorted order. `label_clean` holds the true labels, known if
    label noise was injected on purpose: no component has access to them. `coarse` holds the ancestors of the label's class,
    coarsest first and separated by "/", and becomes the taxonomy. `votes` holds labels by several workers, such as
    "anna:cat|ben:dog" (see `data.votes`). Other columns are ignored. An optional column that is empty in all rows counts as
    missing.
    If samples have several labels, `labels` and `labels_clean` take the places of `label` and `label_clean`: cells such as
    "dress|red", or lists in Parquet. See `label_sets`.

    Args:
        file: .csv (UTF-8, commas) or .parquet.
        root: folder that relative paths start from; default: the folder of the table.
        columns: name as above -> name of the column in the file, for names that differ.
    """
    sheet = without_empty_columns(rename_columns(read_sheet(file), columns or {}))
    check_required(sheet)
    check_names(sheet.owner, sheet.file, sheet.column.keys())
    path = paths(sheet)
    labels = label_fields(sheet)
    optional = optional_columns(sheet)
    check_duplicates(sheet, path, labels["y"], optional["box"])
    return Items(
        name=Path(file).stem,
        path=path,
        root=os.path.abspath(os.path.expanduser(root) if root else os.path.dirname(file)),
        taxonomy=class_tree(sheet, labels["y"], labels["class_name"]),
        **labels,
        **optional,
    )


def split_columns(data: str) -> tuple[str, dict[str, str]]:
    """Split `photos.csv?path=file&label=class` into the file and its columns; no columns if DATA is not a table with a `?`."""
    file, mark, words = data.rpartition("?")
    if not mark or Path(file).suffix.lower() not in (".csv", ".parquet"):
        return data, {}
    columns = {}
    for word in words.split("&"):
        name, mark, given = word.partition("=")
        if name not in KNOWN_COLUMNS or not given:
            raise LikewiseError(
                f"table: after ? write NAME=COLUMN, joined by &, with a NAME of {', '.join(KNOWN_COLUMNS)}; got {word!r}"
                f"{nearest_name(name, KNOWN_COLUMNS)} An example: {Path(file).name}?path=file&label=class"
            )
        columns[name] = given
    return file, columns


def own_columns(data: str, items: Items) -> dict[str, list[str]] | None:
    """Return all columns of the table DATA as text, one cell per row of `items`; None if DATA is no table of files.

    Columns have their own names, but for those that DATA renames. A column whose name is taken by that is called `own_NAME`.
    Columns of records are left out: a cell of text cannot hold them.

    Args:
        items: what was read from DATA, perhaps without images that cannot be decoded.
    """
    name, renamed = split_columns(data)
    file = Path(name).expanduser()
    if file.suffix.lower() not in (".csv", ".parquet") or not file.is_file() or items.path is None:
        return None
    sheet = read_sheet(str(file))
    kept = np.setdiff1d(np.arange(len(sheet)), [row for row, _ in items.skipped]).tolist()
    taken = {*renamed, *(OTHER_FORM[one] for one in ("label", "labels") if one in renamed)}
    found: dict[str, list[str]] = {}
    for own, cells in sheet.column.items():
        if any(isinstance(cell, dict) for cell in cells):
            continue
        names = [one for one, given in renamed.items() if given == own]
        if not names:
            names = [own]
            while names[0] in taken:
                names = [f"own_{names[0]}"]
        texts = [own_text(cells[row]) for row in kept]
        found |= dict.fromkeys(names, texts)
    if found.get("path") != list(items.path):
        raise LikewiseError(f"table: {file.name} must not change while it is read, but it did; start again")
    return found


def own_text(cell: Any) -> str:
    """Return a cell of a table as text: words unchanged, lists of labels joined, None and NaN empty."""
    if isinstance(cell, list | tuple):
        return LABEL_SEPARATOR.join(map(text, cell))
    return cell if isinstance(cell, str) else text(cell)


def rename_columns(sheet: Sheet, columns: dict[str, str]) -> Sheet:
    """Return the table with its columns under the names of likewise. Other columns of these names are left out.

    A column that is named as label or labels replaces both.
    """
    for name, given in columns.items():
        if given not in sheet.column:
            raise LikewiseError(
                f"table: {sheet.file} has no column {given!r} for {name}{nearest_name(given, sheet.column)} "
                f"It has: {', '.join(sheet.column)}"
            )
    renamed = {name: sheet.column[given] for name, given in columns.items()}
    unused = {*columns, *columns.values()} | {OTHER_FORM[name] for name in ("label", "labels") if name in columns}
    others = {name: cells for name, cells in sheet.column.items() if name not in unused}
    return dataclasses.replace(sheet, column=renamed | others)


def check_required(sheet: Sheet) -> None:
    """Raise if path or label is missing and another column looks like it, with the DATA that reads that column."""
    folded = {name.casefold().replace(" ", "_"): name for name in reversed(sheet.column)}
    found = {}
    if "path" not in sheet.column:
        found["path"] = next((folded[a] for a in ("path", *PATH_ALIASES) if a in folded), None)
    if "label" not in sheet.column and "labels" not in sheet.column:
        several = "labels" in folded and "label" not in folded
        found["labels" if several else "label"] = next(
            (folded[a] for a in ("label", "labels", *LABEL_ALIASES) if a in folded), None
        )
    if found and all(found.values()):
        words = "&".join(f"{name}={given}" for name, given in found.items())
        raise LikewiseError(
            f"table: {sheet.file} must have the columns path and label, got: {', '.join(sheet.column)}; to read "
            f'{" and ".join(f"{given!r} as {name}" for name, given in found.items())}, write DATA as "{sheet.file}?{words}"'
        )


def paths(sheet: Sheet) -> tuple[str, ...]:
    """Return the column path; raise if a path is empty or not text."""
    sheet.need("labels" if "labels" in sheet.column else "label")  # first: it is the more important error
    cells = sheet.need("path")
    for row, cell in enumerate(cells):
        if not (isinstance(cell, str) and cell.strip()):
            raise sheet.wrong(row, "path must be a file name", cell, "fill it or drop the row")
        if "\0" in cell:
            raise sheet.wrong(row, "path must be a file name without a zero byte", cell, "correct it")
    return tuple(cells)


def check_duplicates(sheet: Sheet, path: tuple[str, ...], y: np.ndarray, box: np.ndarray | None) -> None:
    """Raise if an image (or the same box of it) is listed twice: it would be its own nearest neighbour."""
    first: dict[tuple, int] = {}
    for row, name in enumerate(path):
        key = (os.path.normpath(name), "" if box is None else str(box[row].tolist()))
        before = first.setdefault(key, row)
        if before == row:
            continue
        where = f"{sheet.at(before)} and in {sheet.unit} {sheet.line[row]}"
        if y[before] != y[row]:
            raise LikewiseError(
                f"table: an image must have one label, but {name!r} has two different labels, in {where}; "
                "keep one of them"
            )
        raise LikewiseError(f"table: an image must be listed once, but {name!r} is in {where}; remove one of them")


def write_table(items: Items, file: str) -> None:
    """Write items as a table that `read_table` (with the same root) reads back; features need .parquet.

    Labels are written as class numbers with their class_name, several labels by their names, the taxonomy as `coarse` (unless a
    name in it contains "/").
    Classes without a row are not written: `read_table` then renumbers the others.
    """
    suffix = Path(file).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise LikewiseError(f"table: a table is a .csv or .parquet file, got {Path(file).name!r}; choose one of these")
    if items.x is not None and suffix == ".csv":
        raise LikewiseError(f"table: features do not fit in a CSV file; write {Path(file).stem}.parquet instead")
    columns = item_columns(items)
    if suffix == ".csv":
        write_csv(Path(file), tuple(columns), zip(*columns.values(), strict=True))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    if items.x is not None:
        flat = pa.array(np.ascontiguousarray(in_memory(items.x), np.float32).reshape(-1))
        columns["x"] = pa.FixedSizeListArray.from_arrays(flat, items.x.shape[1])
    texts = {name: text_column(cells) for name, cells in columns.items() if len(cells) and isinstance(cells[0], str)}
    with atomic_write(Path(file)) as aside:
        pq.write_table(pa.table(columns | texts), aside)


def write_noisy(items: Items, file: Path, *, drop_wrong: bool = False) -> None:
    """Write items with injected label noise as a table whose paths are valid from the folder of the table.

    Args:
        drop_wrong: omit the rows with a wrong label, and the columns of true labels.
    """
    written = dataclasses.replace(items, path=places(items, file))
    if drop_wrong:
        wrong = np.flatnonzero(items.y != items.y_clean).tolist()
        written = dataclasses.replace(drop(written, wrong), y_clean=None)
    write_table(written, str(file))


def item_columns(items: Items) -> dict[str, list]:
    """Return the columns of the table of items, without features."""
    columns: dict[str, list] = {} if items.path is None else {"path": list(items.path)}
    names = label_names(items)
    if items.label_sets is None:
        columns |= {"label": items.y.tolist(), "class_name": [names[c] for c in items.y]}
    else:
        columns["labels"] = [names[c] for c in items.y]
    plain = {"split": str, "query": int, "gallery": int, "junk": int, "group": group_cell, "camera": str, "box": box_cell,
             "weight": float, "votes": str}  # fmt: skip
    for name, cell in plain.items():
        if (values := getattr(items, name)) is not None:
            columns[name] = list(map(cell, values.tolist()))
    if items.gallery_name is not None:
        columns["gallery"] = items.gallery_name.tolist()
    if (coarse := coarse_cells([items.class_name[c] for c in items.y], items.taxonomy)) is not None:
        columns["coarse"] = coarse
    if items.y_clean is not None and items.label_sets is None:
        columns |= {"label_clean": items.y_clean.tolist(), "class_name_clean": [names[c] for c in items.y_clean]}
    elif items.y_clean is not None:
        columns["labels_clean"] = [names[c] for c in items.y_clean]
    return columns


def label_names(items: Items) -> tuple[str, ...]:
    """Return the names of the classes for a table; with several labels the cells of `labels`, which `label_fields` reads."""
    if items.label_sets is None or items.label_name is None:
        return items.class_name
    bad = next((name for name in items.label_name if LABEL_SEPARATOR in name or name.strip() != name or not name), None)
    if bad is not None:
        raise LikewiseError(
            f"table: a label must not be empty, hold '{LABEL_SEPARATOR}' or have spaces around it, because a cell joins several, "
            f"got {bad!r}; rename it"
        )
    return set_names(items.label_sets, items.label_name)


def group_cell(group: int) -> str:
    return "" if group == -1 else str(group)


def box_cell(box: list[float]) -> str:
    if math.isnan(box[0]):
        return ""
    return " ".join(repr(corner).removesuffix(".0") for corner in box)


def places(items: Items, table: Path) -> tuple[str, ...] | None:
    """Return the paths of items for a table: relative if they are below the folder of the table, otherwise absolute."""
    if items.path is None:
        return None
    base = os.path.join(os.path.abspath(table.parent), "")
    return tuple(os.path.abspath(file_of(items, row)).removeprefix(base) for row in range(len(items)))
