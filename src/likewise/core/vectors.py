"""Vectors that stay on disk: a matrix (N, F) whose rows are read in blocks, as float32."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int

BLOCK_BYTES = 2**24
"""Memory of a block of rows as float32; `Vectors.blocks` reads one after the other."""

RowReader = Callable[[slice | np.ndarray], np.ndarray]
"""Returns some rows of a part as float32."""


@runtime_checkable
class VectorPart(Protocol):
    """Consecutive rows of one file."""

    @property
    def rows(self) -> int: ...

    def open(self) -> RowReader:
        """Return the reader of the rows, which holds what was opened or mapped until it is dropped."""
        ...

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yield all rows in order as float32, at most `rows` at once."""
        ...


class Vectors:
    """A matrix (N, F) on disk. Indexing it as an array reads the rows as float32; `blocks` reads all rows in order.

    Memory: the rows that are returned, and one part at a time (about `BLOCK_BYTES` of a memory-mapped file, a row group of a
    Parquet file). Time grows with the number of rows read, plus some 0.1 ms for every part that they are in.

    Args:
        parts: the files, or parts of them, in the order of their rows.
        by_row: whether a few rows of a part can be read without reading all of it.
    """

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[VectorPart], width: int, by_row: bool = True):
        self.parts, self.by_row = tuple(parts), by_row
        self.start = np.concatenate([[0], np.cumsum([part.rows for part in self.parts])]).astype(np.int64)
        self.shape = (int(self.start[-1]), width)
        self._last: tuple[int, RowReader] | None = None  # the part that was read last stays open

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Vectors({self.shape[0]} x {self.shape[1]}, on disk in {len(self.parts)} parts)"

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_last": None}

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return a row (int), or rows (slice, whole numbers, or a mask) as a new float32 array."""
        if isinstance(key, int | np.integer):
            row = int(key) + (len(self) if key < 0 else 0)
            if not 0 <= row < len(self):
                raise IndexError(f"row {key} of {len(self)}")
            part = bisect.bisect_right(self.start, row) - 1
            return self._reader(part)(slice(row - int(self.start[part]), row - int(self.start[part]) + 1))[0]
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            if step == 1:
                return self._range(first, max(first, last))
            key = np.arange(first, last, step)
        rows = np.asarray(key)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise IndexError(f"a mask of {len(self)} rows must have the shape ({len(self)},), got {rows.shape}")
            rows = np.flatnonzero(rows)
        return self._gather(rows.astype(np.int64, copy=False))

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return all rows as an array in memory."""
        whole = self._range(0, len(self))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Float32[np.ndarray, "n F"]]]:
        """Yield the number of the first row, and consecutive rows; at most `rows`, by default `BLOCK_BYTES`."""
        rows = rows or block_rows(self.shape[1])
        for first, part in zip(self.start[:-1].tolist(), self.parts, strict=True):
            for block in part.blocks(rows):
                yield first, block
                first += len(block)

    def _reader(self, part: int) -> RowReader:
        last = self._last
        if last is None or last[0] != part:
            self._last = None  # closes the last part before the next one is opened
            last = (part, self.parts[part].open())
            self._last = last
        return last[1]

    def _range(self, first: int, last: int) -> np.ndarray:
        found = np.empty((last - first, self.shape[1]), np.float32)
        for part, start in enumerate(self.start[:-1].tolist()):
            begin, end = max(first, start), min(last, start + self.parts[part].rows)
            if begin < end:
                found[begin - first : end - first] = self._reader(part)(slice(begin - start, end - start))
        return found

    def _gather(self, rows: Int[np.ndarray, "n"]) -> np.ndarray:
        if len(rows) and not (-len(self) <= rows.min() and rows.max() < len(self)):
            raise IndexError(f"rows must be below {len(self)}, got {rows.min()} to {rows.max()}")
        rows = np.where(rows < 0, rows + len(self), rows)
        part = np.searchsorted(self.start, rows, side="right") - 1
        found, order = np.empty((len(rows), self.shape[1]), np.float32), np.argsort(part, kind="stable")
        parts, begin = np.unique(part[order], return_index=True)
        for one, place in zip(parts.tolist(), np.split(order, begin[1:])):
            found[place] = self._reader(one)(rows[place] - self.start[one])
        return found


def block_rows(width: int) -> int:
    """Return the number of rows of this width in `BLOCK_BYTES` of float32."""
    return max(1, BLOCK_BYTES // (4 * width))


def blocks_of(x: np.ndarray | Vectors) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of the first row, and consecutive rows, of vectors in memory or on disk."""
    if isinstance(x, Vectors):
        yield from x.blocks()
        return
    size = block_rows(x.shape[1])
    yield from ((first, x[first : first + size]) for first in range(0, len(x), size))


def in_memory(x: np.ndarray | Vectors) -> np.ndarray:
    """Return vectors as an array that may be written to, as torch needs it; vectors on disk are read as float32."""
    if isinstance(x, Vectors):
        return np.asarray(x)
    return x if x.flags.writeable else x.copy()
