"""Parquet tables with all columns and the vectors in the list column `x`, which `evaluate`, `audit` and `train` read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, check_output_path, text_column
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.row_records import VECTOR_NAMES, Records, arrow_kind, check_free, check_source, from_cells
from likewise.data.features import load_parquet

SIMILARITY_KEY = b"likewise.similarity"
"""Key of the file's metadata."""


def send(records: Records, config: Send) -> list[str]:
    """Write the records with their vectors as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert records.x is not None
    out = check_output_path(config.out, ".parquet", "parquet")
    check_free([out], "parquet", config.replace)
    if wrong := next((name for name in records.columns if name in VECTOR_NAMES), None):
        raise LikewiseError(f"parquet: a column must not be called {', '.join(VECTOR_NAMES)}, got {wrong!r}; rename it")
    columns: dict = {"row": pa.array(records.row)}
    joined = ("label",) if "labels" in records.columns else ()  # a file has label or labels
    for name, cells in records.columns.items():
        if name in joined:
            continue
        kind = arrow_kind(name)
        columns[name] = text_column(cells) if kind == pa.string() else pa.array(cells, kind)
    flat = pa.array(np.ascontiguousarray(records.x).reshape(-1))
    columns["x"] = pa.FixedSizeListArray.from_arrays(flat, records.x.shape[1])
    table = pa.table(columns).replace_schema_metadata({SIMILARITY_KEY: records.similarity.encode()})
    with atomic_write(out) as aside:
        pq.write_table(table, aside)
    return []


def receive(config: Receive) -> Records:
    """Return all rows of a Parquet file, with vectors and columns unchanged."""
    import pyarrow.parquet as pq

    file = Path(config.source).expanduser()
    check_source(file, "parquet", "a file")
    x, cells = load_parquet(str(file))
    similarity = (pq.read_schema(file).metadata or {}).get(SIMILARITY_KEY, b"cosine").decode()
    return from_cells(cells, "parquet", x, similarity)
