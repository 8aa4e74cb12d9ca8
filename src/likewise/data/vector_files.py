"""Parts of files of vectors, as `core.vectors.Vectors` reads them: memory-mapped `.npy` rows, and row groups of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import first_line
from likewise.core.vectors import BLOCK_BYTES, RowReader, Vectors, block_rows, in_memory
from likewise.data.tabular import parquet_errors


@dataclass(frozen=True)
class Header:
    """What the header of a .npy file says."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool  # columns first
    offset: int  # first byte of the numbers


def read_header(file: str | os.PathLike) -> Header:
    """Return the header of a .npy file; raise ValueError if it is not one, holds Python objects, or is cut off."""
    with open(file, "rb") as raw:
        version = np.lib.format.read_magic(raw)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(raw)
        header = Header(dtype, shape, fortran, raw.tell())
        size, needs = os.fstat(raw.fileno()).st_size, header.offset + dtype.itemsize * int(np.prod(shape, dtype=object))
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if size < needs:
        raise ValueError(f"it is cut off: {size} of {needs} bytes")
    return header


@dataclass(frozen=True)
class MappedRows:
    """Consecutive rows of a .npy file (N, F), memory-mapped while they are read.

    Args:
        offset: first byte of the rows.
        scale: for int8: the .npy file with one float32 per row, and the first byte of these rows in it; a row is its numbers
            times its scale.
    """

    file: str
    dtype: str
    offset: int
    rows: int
    width: int
    scale: tuple[str, int] | None = None

    def open(self) -> RowReader:
        try:
            z = np.memmap(self.file, self.dtype, "r", self.offset, (self.rows, self.width))
            scale = None if self.scale is None else np.memmap(self.scale[0], "<f4", "r", self.scale[1], (self.rows,))
        except (OSError, ValueError) as error:
            raise LikewiseError(
                f"features: {self.file} must stay as it is while it is read, but cannot be read any more "
                f"({first_line(error)}); restore it"
            ) from None
        if scale is None:
            return lambda rows: z[rows].astype(np.float32)
        return lambda rows: z[rows] * scale[rows][:, None]

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        read = self.open()
        yield from (read(slice(first, min(first + rows, self.rows))) for first in range(0, self.rows, rows))


def mapped_rows(file: str, header: Header, scale: tuple[str, int] | None = None) -> list[MappedRows]:
    """Return the rows of a .npy file (N, F) as parts of about `BLOCK_BYTES`, so that a reader maps no more at once.

    Args:
        scale: the .npy file with the scale of every row, and the first byte of its numbers.
    """
    rows, width = header.shape
    bytes_per_row = header.dtype.itemsize * width
    step = max(1, BLOCK_BYTES // bytes_per_row)
    return [
        MappedRows(
            file, header.dtype.str, header.offset + first * bytes_per_row, min(step, rows - first), width,
            None if scale is None else (scale[0], scale[1] + 4 * first),
        )
        for first in range(0, rows, step)
    ]  # fmt: skip


def compact(x: np.ndarray | Vectors, rows: np.ndarray) -> np.ndarray:
    """Return some rows, in ascending order, as float16 if all vectors are stored so on disk, otherwise as float32.

    float16 takes half of the memory and holds the same numbers. All rows of one .npy file of float16 stay on disk, memory-mapped.
    """
    parts = x.parts if isinstance(x, Vectors) else ()
    mapped = [part for part in parts if isinstance(part, MappedRows) and part.scale is None and part.dtype == "<f2"]
    if not isinstance(x, Vectors) or len(mapped) < len(parts):
        return in_memory(x if len(rows) == len(x) else x[rows])  # no copy of all rows of a mapped array
    if len(rows) == len(x) and len({part.file for part in mapped}) == 1:
        return np.memmap(mapped[0].file, "<f2", "c", mapped[0].offset, x.shape)
    found = np.empty((len(rows), x.shape[1]), np.float16)
    for some in np.array_split(np.arange(len(rows)), -(-len(rows) // block_rows(x.shape[1]))):
        found[some] = x[rows[some]]
    return found


@dataclass(frozen=True)
class ParquetRows:
    """A row group of a column of lists of numbers in a Parquet file. Reading a few rows reads the whole row group."""

    file: str
    column: str
    group: int
    rows: int
    width: int

    def open(self) -> RowReader:
        whole = np.concatenate(list(self.blocks(max(1, self.rows))))
        return lambda rows: whole[rows].copy() if isinstance(rows, slice) else whole[rows]

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        import pyarrow.parquet as pq

        with parquet_errors(self.file, "features"), pq.ParquetFile(self.file, pre_buffer=False) as opened:
            options = {"row_groups": [self.group], "columns": [self.column], "use_threads": False}
            for batch in opened.iter_batches(rows, **options):
                numbers = batch.column(0).flatten().to_numpy(zero_copy_only=False)
                yield numbers.reshape(len(batch), self.width).astype(np.float32, copy=False)


def parquet_vectors(file: str, column: str) -> Vectors:
    """Return the vectors in a column of a Parquet file, read in blocks; raise if a vector is missing or has another length."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    name, width, first = Path(file).name, None, 0
    with parquet_errors(file, "features"), pq.ParquetFile(file, pre_buffer=False) as opened:
        groups = [opened.metadata.row_group(number).num_rows for number in range(opened.metadata.num_row_groups)]
        for batch in opened.iter_batches(2**14, columns=[column], use_threads=False):
            lengths = pc.fill_null(batch.column(0).value_lengths(), -1).to_numpy(zero_copy_only=False)
            width = int(lengths[0]) if width is None else width
            odd = np.flatnonzero(lengths != width)
            if len(odd):
                got = "nothing" if lengths[odd[0]] < 0 else int(lengths[odd[0]])
                raise LikewiseError(
                    f"features: all vectors must have the same length, but {name} has {width} numbers in row 1 and {got} in "
                    f"row {first + odd[0] + 1}"
                )
            first += len(batch)
    assert width is not None
    parts = [ParquetRows(file, column, number, rows, width) for number, rows in enumerate(groups)]
    return Vectors(parts, width, by_row=False)
