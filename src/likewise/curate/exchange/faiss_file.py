"""A flat index of faiss with the rows as ids, and a table of the rows beside it.

NAME.faiss is read by `faiss.read_index`; its search returns ids, which are the column `row` of NAME.csv.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, check_output_path, first_line, write_csv
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.packages import import_package
from likewise.curate.exchange.places import check_free, check_source
from likewise.curate.exchange.records import Records, from_cells
from likewise.data.tabular import read_csv

INDEX_HEADER = struct.Struct("<4siqqq?i")
"""Start of an index in a file: type, dimension, number of vectors, two unused numbers, whether it is trained, metric."""
ID_MAP_KINDS = (b"IxMp", b"IxM2")
"""Types of an index with ids: a header, the inner index, the ids."""
FLAT_KINDS = (b"IxFI", b"IxF2", b"IxFl")
"""Types of a flat index: a header, the number of floats, the floats."""
NO_FLAT_INDEX = (
    "faiss: the index must be flat (IndexFlatIP or IndexFlatL2, with or without ids), whose vectors are exact"
)
"""Start of the error about another index."""


def send(records: Records, config: Send) -> list[str]:
    """Write a flat index, exact by inner product (cosine) or distance (euclidean), and the table of its ids."""
    out = check_output_path(config.out, ".faiss", "faiss")
    table = out.with_suffix(".csv")
    check_free([out, table], "faiss", config.replace)
    faiss, x = import_package("faiss", "faiss"), records.x
    assert x is not None
    flat = faiss.IndexFlatIP(x.shape[1]) if records.similarity == "cosine" else faiss.IndexFlatL2(x.shape[1])
    index = faiss.IndexIDMap2(flat)
    index.add_with_ids(np.ascontiguousarray(x), records.row)
    cells = zip(records.row.tolist(), *records.plain_columns().values())
    with atomic_write(table) as beside, atomic_write(out) as aside:
        write_csv(beside, ["row", *records.columns], cells)
        try:
            faiss.write_index(index, str(aside))
        except RuntimeError as error:  # its own type for a disk that is full or a folder that cannot be written
            raise OSError(first_line(error)) from None
        table.unlink(missing_ok=True)  # at no time is a new index beside an old table
    return [f"table of the ids: {table}"]


def receive(config: Receive) -> Records:
    """Return the vectors of a flat index, unchanged, with the columns of the table beside it, if there is one."""
    faiss, file = import_package("faiss", "faiss"), Path(config.source).expanduser()
    check_source(file, "faiss", "a file of faiss.write_index")
    check_size(file)
    try:
        owned = faiss.read_index(str(file))  # it must outlive the downcast objects, which do not own their memory
        index = faiss.downcast_index(owned)
    except (RuntimeError, MemoryError) as error:
        raise LikewiseError(
            f"faiss: {file.name} must be a file of faiss.write_index, but it cannot be read ({first_line(error)}); write it again"
        ) from None
    has_ids = isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2)
    flat = faiss.downcast_index(index.index) if has_ids else index
    if not isinstance(flat, faiss.IndexFlat):
        raise LikewiseError(f"{NO_FLAT_INDEX}, got {type(flat).__name__}; save a flat index by faiss.write_index")
    row = faiss.vector_to_array(index.id_map) if has_ids else np.arange(index.ntotal)
    x = flat.reconstruct_n(0, flat.ntotal) if flat.ntotal else np.empty((0, flat.d), np.float32)
    similarity = "cosine" if flat.metric_type == faiss.METRIC_INNER_PRODUCT else "euclidean"
    return from_cells(columns_of(file.with_suffix(".csv"), row), "faiss", x, similarity)


def check_size(file: Path) -> None:
    """Raise unless the file is a flat index and as long as its header declares: faiss allocates what a header declares."""
    with file.open("rb") as content:
        head = content.read(2 * INDEX_HEADER.size)
        begin = INDEX_HEADER.size if head[:4] in ID_MAP_KINDS else 0
        kind, dimension, count, *_, metric = INDEX_HEADER.unpack_from(head.ljust(2 * INDEX_HEADER.size, b"\0"), begin)
        if kind not in FLAT_KINDS or metric not in (0, 1):  # inner product, distance
            raise LikewiseError(
                f"{NO_FLAT_INDEX}, but {file.name} cannot be read as one (type {kind.decode('ascii', 'replace')!r}, metric "
                f"{metric}); save a flat index by faiss.write_index"
            )
        floats, ids = begin + INDEX_HEADER.size, begin + INDEX_HEADER.size + 8 + 4 * count * dimension
        fits = min(count, dimension) >= 0 and file.stat().st_size == ids + (8 + 8 * count if begin else 0)
        for place, length in ((floats, count * dimension), *([(ids, count)] if begin else [])):
            content.seek(place if fits else 0)
            fits = fits and content.read(8) == struct.pack("<q", length)
    if not fits:
        raise LikewiseError(
            f"faiss: {file.name} must be as long as its header declares ({count} vectors of dimension {dimension}), but it "
            "cannot be read so; write it again"
        )


def columns_of(file: Path, row: np.ndarray) -> dict[str, list]:
    """Return the columns of the table of ids, in the order of the index; only the rows if there is no table."""
    if not file.is_file():
        return {"row": row.tolist()}
    sheet = read_csv(str(file), "faiss")
    place = {cell: line for line, cell in enumerate(sheet.need("row"))}
    at = [place.get(str(one)) for one in row.tolist()]
    if None in at or len(at) != len(sheet):
        raise LikewiseError(
            f"faiss: {file.name} must have the {len(row)} ids of the index in its column row, got others; send both files again"
        )
    return {name: [cells[line] for line in at if line is not None] for name, cells in sheet.column.items()}
