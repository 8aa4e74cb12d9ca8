"""A flat index of faiss with the rows as ids, and a table of the rows beside it.

NAME.faiss is read by `faiss.read_index`; its search returns ids, which are the column `row` of NAME.csv.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from likewise.config import Receive, Send
from likewise.data.tabular import read_csv
from likewise.errors import LikewiseError
from likewise.exchange.packages import import_package
from likewise.exchange.records import Records, from_cells
from likewise.io.files import atomic_write, check_output_path, first_line, write_csv


def send(records: Records, config: Send) -> list[str]:
    """Write a flat index, exact by inner product (cosine) or distance (euclidean), and the table of its ids."""
    out = check_output_path(config.out, ".faiss", "faiss")
    faiss, x = import_package("faiss", "faiss"), records.x
    assert x is not None
    flat = faiss.IndexFlatIP(x.shape[1]) if records.similarity == "cosine" else faiss.IndexFlatL2(x.shape[1])
    index = faiss.IndexIDMap2(flat)
    index.add_with_ids(np.ascontiguousarray(x), records.row)
    cells = zip(records.row.tolist(), *records.plain_columns().values())
    with atomic_write(out) as aside:
        faiss.write_index(index, str(aside))
    write_csv(out.with_suffix(".csv"), ["row", *records.columns], cells)
    return [f"table of the ids: {out.with_suffix('.csv')}"]


def receive(config: Receive) -> Records:
    """Return the vectors of a flat index, unchanged, with the columns of the table beside it, if there is one."""
    faiss, file = import_package("faiss", "faiss"), Path(config.source).expanduser()
    if not file.is_file():
        raise LikewiseError(
            f"faiss: the source must be a file of faiss.write_index, got '{config.source}'; check the path"
        )
    try:
        owned = faiss.read_index(str(file))  # it must outlive the downcast objects, which do not own their memory
        index = faiss.downcast_index(owned)
    except (RuntimeError, MemoryError) as error:
        raise LikewiseError(
            f"faiss: {file.name} must be a file of faiss.write_index, but it cannot be read ({first_line(error)})"
        ) from None
    has_ids = isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2)
    flat = faiss.downcast_index(index.index) if has_ids else index
    if not isinstance(flat, faiss.IndexFlat) or flat.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        raise LikewiseError(
            f"faiss: the index must be flat (IndexFlatIP or IndexFlatL2, with or without ids), got {type(flat).__name__}, "
            "whose vectors are not exact; save a flat index"
        )
    row = faiss.vector_to_array(index.id_map) if has_ids else np.arange(index.ntotal)
    x = flat.reconstruct_n(0, flat.ntotal) if flat.ntotal else np.empty((0, flat.d), np.float32)
    similarity = "cosine" if flat.metric_type == faiss.METRIC_INNER_PRODUCT else "euclidean"
    return from_cells(columns_of(file.with_suffix(".csv"), row), "faiss", x, similarity)


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
