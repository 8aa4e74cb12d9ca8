"""Read precomputed features or embeddings with their labels, as items without images."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from likewise.core.files import first_line
from likewise.core.types import Items, LikewiseError
from likewise.core.vectors import BLOCK_BYTES, Vectors, blocks_of
from likewise.data.label_sets import label_fields
from likewise.data.schema import (
    BOX_CORNERS,
    KNOWN_COLUMNS,
    check_names,
    class_tree,
    distinct_words,
    in_order,
    integers,
    optional_columns,
    text,
    without_empty_columns,
)
from likewise.data.shards import INDEX_FILE, is_shards, open_shards
from likewise.data.tabular import (
    MIN_CODED_ROWS,
    Codes,
    Sheet,
    as_codes,
    check_rows,
    parquet_errors,
    read_coded_csv,
    read_csv,
    read_parquet,
    read_text,
)
from likewise.data.vector_files import mapped_rows, parquet_vectors, read_header

FEATURE_SUFFIXES = ".npy, .npz, .parquet or .safetensors"
"""Supported files, for error messages."""

MAX_LOADED_BYTES = 4 * BLOCK_BYTES
"""Size as float32 up to which the vectors of a file are read into memory; larger ones stay on disk as `Vectors`."""

UNCODED_COLUMNS = ("path", "box", *BOX_CORNERS, "weight", "votes")
"""Columns whose cells mostly differ."""

LABEL_COLUMNS = ("label", "labels", "y", "class_name", "label_clean", "labels_clean", "class_name_clean", "coarse")
"""Columns of a feature file that a separate label file replaces."""


def read_features(file: str, root: str | None = None) -> Items:
    """Read features from `.npz` (x and label, labels or y; optionally the columns of a table, such as split or camera) or
    `.parquet` (a list column x and the columns of a table).

    Args:
        root: base folder of the paths, if the file has any; default: the folder of the file.
    """
    return read_embeddings(file, root=root)


def read_embeddings(file: str, labels: str | None = None, root: str | None = None) -> Items:
    """Read precomputed vectors as items with `x`. Files are never unpickled.

    Vectors in .npz and .safetensors files are read into memory. Those of a .npy or .parquet file or of a folder of shards that
    take more than `MAX_LOADED_BYTES` stay on disk: as a memory-mapped array (.npy of float32), or as `core.vectors.Vectors`.

    Args:
        file: .npy (N, F), or .npz, .safetensors, .parquet with the vectors as x (or z) and their labels; or a folder of shards
            (`data.shards`).
        labels: file with the labels: .npy (N), .csv with a column label, or .txt with one label per line. Its columns replace
            those of `file`. The lines of a CSV file may be in any order if it has a column row, which holds 0 to N - 1.
        root: base folder of the paths, if the file has any; default: the folder of the file.
    """
    name = Path(file).name
    if not os.path.isfile(file) and not is_shards(file):
        what = f"{file} is a folder without {INDEX_FILE}" if os.path.isdir(file) else f"there is no file {file}"
        raise LikewiseError(f"features: {what}; check the path")
    x, columns = read_arrays(file)
    if not is_shards(file):  # `open_shards` has checked them, and names the shard
        x = check_vectors(x, name) if isinstance(x, Vectors) else check_x(x, name)
    if labels is not None:
        return to_items(file, x, labelled_by(labels, name, columns, len(x)), root)
    if not {"label", "labels", "y"} & columns.keys():
        has = ", ".join(columns) or "nothing else"
        raise LikewiseError(
            f"features: {name} must hold the labels as label or y, got: {has}; "
            "add them, or give a file with the labels (--labels)"
        )
    return to_items(file, x, as_sheet(name, columns, len(x)), root)


def from_arrays(x: Any, y: Any, name: str = "the arrays") -> Items:
    """Return vectors in memory as items with `x`, like `read_embeddings` for a file.

    Args:
        x: (N, F) numbers; a numpy array, a torch tensor, or anything that numpy can convert.
        y: N labels, whole numbers or words.
        name: name of the arrays in errors.
    """
    x, y = check_x(as_array(x), name), as_array(y)
    return to_items(name, x, as_sheet(name, {"label": y}, len(x)), None)


def as_array(values: Any) -> np.ndarray:
    """Return values of numpy, torch or Python as a numpy array; bfloat16, which numpy does not have, becomes float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise LikewiseError(
            f"features: all rows of an array must have the same length ({first_line(error)}); reshape it"
        ) from None


def labelled_by(labels: str, name: str, columns: dict, count: int) -> Sheet:
    """Return the columns of the label file, and the other columns of the feature file.

    Labels are held by code: a million of them take seconds, and one Python object per distinct label (see `Codes`).
    """
    sheet = read_labels(labels)
    if len(sheet) != count:
        raise LikewiseError(
            f"features: each vector must have a label: {name} has {count} rows and {sheet.file} has {len(sheet)}; "
            "make them agree"
        )
    sheet = in_row_order(sheet, name, count) if "row" in sheet.column else sheet
    beside = as_sheet(name, {key: cells for key, cells in columns.items() if key not in LABEL_COLUMNS}, count).column
    for row, (mine, theirs) in enumerate(zip(sheet.column.get("path", ()), beside.get("path", ()))):
        if Path(str(mine)).name != Path(str(theirs)).name:
            raise LikewiseError(
                f"features: {sheet.at(row)} must be a label of {Path(str(theirs)).name}, row {row} of {name}, got one of "
                f"{Path(str(mine)).name}; put both in one order"
            )
    return replace(sheet, column={**beside, **sheet.column})


def in_row_order(sheet: Sheet, name: str, count: int) -> Sheet:
    """Return the labels in the order of the vectors, by their column row; raise unless it holds 0 to `count` - 1."""
    if count >= MIN_CODED_ROWS and (fast := order_of_numbers(sheet.column["row"])) is not None:
        return reordered(sheet, fast)
    place = {text(cell): line for line, cell in enumerate(sheet.column["row"])}
    if missing := [row for row in range(count) if str(row) not in place]:
        raise LikewiseError(
            f"labels: the column row of {sheet.file} must hold every row of {name} once, 0 to {count - 1}, but {len(missing)} "
            f"are missing (first: {missing[0]}); correct the column, or rename it if it means something else"
        )
    return reordered(sheet, np.array([place[str(row)] for row in range(count)]))


def order_of_numbers(cells: Any) -> np.ndarray | None:
    """Return the line of every number 0 to N - 1 in a column of N texts; None if the column is not a plain permutation."""
    import pyarrow as pa

    try:
        number = pa.array(cells, pa.string()).cast(pa.int64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError):
        return None
    if number.min(initial=0) < 0 or not (np.bincount(number, minlength=len(number)) == 1).all():
        return None
    order = np.empty(len(number), np.int64)
    order[number] = np.arange(len(number))
    return order


def reordered(sheet: Sheet, order: np.ndarray) -> Sheet:
    """Return the lines of a table in another order."""
    lines = order.tolist()
    columns = {
        key: Codes(cells.code[order], cells.cells) if isinstance(cells, Codes) else [cells[line] for line in lines]
        for key, cells in sheet.column.items()
    }
    return replace(sheet, column=columns, line=[sheet.line[line] for line in lines])


def to_items(file: str, x: np.ndarray | Vectors, sheet: Sheet, root: str | None) -> Items:
    """Return items from vectors and the columns of a table."""
    sheet = without_empty_columns(sheet)
    labels = label_fields(sheet)
    path = sheet.column.get("path")
    return Items(
        name=Path(file).stem,
        path=None if path is None else tuple(str(cell) for cell in path),
        root="" if path is None else os.path.abspath(os.path.expanduser(root) if root else os.path.dirname(file)),
        x=x,
        taxonomy=class_tree(sheet, labels["y"], labels["class_name"]),
        **labels,
        **optional_columns(sheet),
    )


def holds_features(file: str) -> bool:
    """Whether a path holds features: a folder of shards, or a Parquet file with a column x, or with z and without path."""
    if is_shards(file):
        return True
    if Path(file).suffix.lower() != ".parquet":
        return False
    import pyarrow.parquet as pq

    with parquet_errors(file, "table"):
        names = pq.read_schema(file).names
    return "x" in names or ("z" in names and "path" not in names)


def read_arrays(file: str) -> tuple[np.ndarray | Vectors, dict]:
    """Return the vectors, and all other columns by name as arrays, lists of cells, or `Codes`."""
    suffix, name = Path(file).suffix.lower(), Path(file).name
    if is_shards(file):
        x, columns = open_shards(file)
        return (np.asarray(x) if 4 * x.shape[0] * x.shape[1] <= MAX_LOADED_BYTES else x), columns
    if suffix == ".npy":
        return large_numpy(file) or load_numpy(file), {}
    if suffix == ".npz":
        arrays = load_numpy(file)
    elif suffix == ".safetensors":
        arrays = load_safetensors(file)
    elif suffix == ".parquet":
        return load_parquet(file)
    else:
        raise LikewiseError(
            f"features: embeddings are read from {FEATURE_SUFFIXES}, got {name!r}; save them as one of these"
        )
    key = vector_key(list(arrays), name)
    return arrays.pop(key), arrays


def large_numpy(file: str) -> Vectors | None:
    """Return a large .npy file of numbers that are not float32 as vectors on disk; None for any other file."""
    try:
        header = read_header(file)
    except (ValueError, OSError, EOFError):
        return None  # `load_numpy` raises the error
    if header.dtype == np.float32 or header.dtype.kind not in "fiub" or header.fortran or len(header.shape) != 2:
        return None
    rows, width = header.shape
    return Vectors(mapped_rows(file, header), width) if 4 * rows * width > MAX_LOADED_BYTES else None


def vector_key(names: list[str], file: str) -> str:
    """Return the name of the array of vectors, x or z; raise if both or none are there."""
    keys = [key for key in ("x", "z") if key in names]
    if len(keys) != 1:
        has = ", ".join(names) or "nothing"
        found = "both x and z; keep one of them" if keys else f"{has}; rename the array of vectors to x"
        raise LikewiseError(f"features: {file} must hold the vectors (N, F) under the name x, got: {found}")
    return keys[0]


def load_numpy(file: str) -> Any:
    """Return the array of a .npy file, or the arrays of a .npz file by name."""
    name, many = Path(file).name, Path(file).suffix.lower() == ".npz"
    key = ""
    try:
        if not many and not zipfile.is_zipfile(file):
            return np.load(file, mmap_mode="c", allow_pickle=False)  # memory-mapped
        with open(file, "rb") as raw:
            loaded = np.load(raw, allow_pickle=False)
            if many != isinstance(loaded, np.lib.npyio.NpzFile):
                kind = "a .npz archive" if many else "one .npy array"
                raise LikewiseError(f"features: {name} must be {kind}, but it is the other format; rename it")
            if not many:
                return loaded
            arrays = {}
            for key in loaded.files:
                arrays[key] = loaded[key]
            return arrays
    except LikewiseError:
        raise
    except Exception as error:  # numpy, zipfile and zlib raise many types for damaged files
        if "pickle" in str(error) or "Python objects" in str(error):
            array_name = f"the array {key!r} of {name}" if key else name
            raise LikewiseError(
                f"features: {array_name} holds Python objects, which are not unpickled, because that could run foreign code; "
                "save plain arrays of numbers or text (np.asarray(values, dtype=str) for names)"
            ) from None
        raise LikewiseError(
            f"features: {name} cannot be read as NumPy data ({first_line(error)}); save it again"
        ) from None


def load_safetensors(file: str) -> dict[str, np.ndarray]:
    import torch
    from safetensors.torch import load_file

    try:
        tensors = load_file(file)
    except Exception as error:  # safetensors raises many types for damaged files
        raise LikewiseError(
            f"features: {Path(file).name} is not a readable safetensors file ({first_line(error)}); save it again"
        ) from None
    return {k: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for k, t in tensors.items()}


def load_parquet(file: str) -> tuple[np.ndarray | Vectors, dict]:
    """Return the vectors of a Parquet file, on disk if they are large, and its other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = Path(file).name
    with parquet_errors(file, "features"):
        schema = pq.read_schema(file)
        key = vector_key(schema.names, name)
        check_rows(pq.read_metadata(file).num_rows, name, "features")
        kind = schema.field(key).type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise LikewiseError(f"features: the column {key!r} of {name} must hold lists of numbers, got {kind}")
        if uncompressed_bytes(file) > MAX_LOADED_BYTES:
            return parquet_vectors(file, key), read_parquet(file, "features", without=[key]).column
        column = pq.read_table(file, columns=[key])[key].combine_chunks()
        lengths = column.value_lengths().to_pylist()
        odd = next((row for row, length in enumerate(lengths) if length is None or length != lengths[0]), None)
        if odd is not None:
            raise LikewiseError(
                f"features: all vectors must have the same length, but {name} has {lengths[0]} numbers in row 1 and "
                f"{'nothing' if lengths[odd] is None else lengths[odd]} in row {odd + 1}"
            )
        # torch warns about arrays that are not writable
        x = column.flatten().to_numpy(zero_copy_only=False, writable=True)
        x = x.reshape(len(column), lengths[0])
    return x, read_parquet(file, "features", without=[key]).column


def uncompressed_bytes(file: str) -> int:
    """Return the size of a Parquet file without compression, from its footer."""
    import pyarrow.parquet as pq

    about = pq.read_metadata(file)
    return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))


def check_vectors(x: Vectors, name: str) -> Vectors:
    """Return vectors on disk if they are finite; raise an error that names the invalid rows. Reads all rows, in blocks."""
    raise_for_rows(~all_finite(x), name, "hold NaN or infinite values, or values too large for float32; drop them")
    return x


def check_x(x: np.ndarray, name: str) -> np.ndarray:
    """Return the vectors (N, F) as finite float32; raise an error that names the invalid rows."""
    if x.dtype.kind not in "fiub":
        raise LikewiseError(f"features: x of {name} must be numbers, got the type {x.dtype}; save it as float32")
    if x.ndim != 2 or 0 in x.shape:
        raise LikewiseError(
            f"features: x of {name} must have the shape (N, F), one row per sample, got {x.shape}; reshape it"
        )
    half = " (float16 ends at 65504: save float32)" if x.dtype == np.float16 else ""
    raise_for_rows(~all_finite(x), name, f"hold NaN or infinite values{half}; drop them or compute them again")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(x, dtype=np.float32)  # no copy if it is float32 already: it may be memory-mapped
    if x.dtype.itemsize > 4:
        raise_for_rows(~all_finite(single), name, "hold values too large for float32 (above 3.4e38); scale them down")
    return single


def all_finite(x: np.ndarray | Vectors) -> np.ndarray:
    """Return a mask of the rows that are finite, computed in blocks to bound memory."""
    return np.concatenate([np.isfinite(block).all(axis=1) for _, block in blocks_of(x)])


def raise_for_rows(bad: np.ndarray, name: str, problem: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        first = ", ".join(str(row) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        raise LikewiseError(
            f"features: x of {name} must be finite, but {len(rows)} of {len(bad)} rows (from 0: {first}) {problem}"
        )


def as_sheet(name: str, columns: dict, count: int) -> Sheet:
    """Return the known arrays of a feature file as columns of cells; `y` becomes `label`. Other arrays are ignored."""
    if "label" in columns and "y" in columns:
        raise LikewiseError(f"features: {name} has both label and y; keep one of them")
    cells = {("label" if key == "y" else key): column for key, column in columns.items()}
    check_names("features", name, cells.keys())
    cells: dict = {key: as_cells(column, key, name) for key, column in cells.items() if key in KNOWN_COLUMNS}
    if "class_name" in cells and len(cells["class_name"]) != count:
        cells["class_name"] = spread(cells["class_name"], cells["label"], name)
    for key, column in cells.items():
        if len(column) != count:
            raise LikewiseError(f"features: x of {name} has {count} rows, but {key} has {len(column)}; make them agree")
    return Sheet("features", name, cells, range(1, count + 1), unit="row")


def as_cells(column: np.ndarray | Sequence, key: str, name: str) -> Sequence:
    """Return a column as Python values, by code if there are many rows of few values; bytes become text."""
    if not isinstance(column, np.ndarray):
        return column
    axes = 2 if key == "box" else 1
    if column.ndim != axes:
        wanted = "(N, 4)" if key == "box" else "(N,)"
        raise LikewiseError(f"features: {key} of {name} must have the shape {wanted}, got {column.shape}; reshape it")
    if key not in UNCODED_COLUMNS and (coded := as_codes(column)) is not None:
        return coded
    return [cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell for cell in column.tolist()]


def spread(names: Sequence, label: Sequence, file: str) -> Sequence:
    """Return one class name per row from one per class: indexed by the label if labels are indices, else by label order."""
    words = label.map(text) if isinstance(label, Codes) else [text(cell) for cell in label]
    distinct = in_order(distinct_words(words))
    if integers(distinct) and all(0 <= int(word) < len(names) for word in distinct):
        name = {word: names[int(word)] for word in distinct}
    elif len(names) == len(distinct):
        name = dict(zip(distinct, names, strict=True))
    else:
        raise LikewiseError(
            f"features: class_name of {file} must have one name per row ({len(label)}) or per class ({len(distinct)}), "
            f"got {len(names)}"
        )
    return words.map(name.__getitem__) if isinstance(words, Codes) else [name[word] for word in words]


def read_labels(file: str) -> Sheet:
    """Return the columns of a label file: .npy, .csv or .txt."""
    suffix, name = Path(file).suffix.lower(), Path(file).name
    if suffix == ".csv":
        sheet = read_coded_csv(file, "labels") or read_csv(file, "labels")
        check_names(sheet.owner, sheet.file, sheet.column.keys())
        return sheet
    if suffix == ".npy":
        if not os.path.isfile(file):
            raise LikewiseError(f"labels: there is no file {file}; check the path")
        cells = load_numpy(file)
        return as_sheet(name, {"label": cells}, len(cells) if cells.ndim else 0)
    if suffix == ".txt":
        words = re.split(r"\r\n|\r|\n", read_text(file, "labels").rstrip("\r\n"))
        return Sheet("labels", name, {"label": words}, range(1, len(words) + 1))
    raise LikewiseError(f"labels: labels are read from .npy, .csv or .txt, got {name!r}; save them as one of these")
