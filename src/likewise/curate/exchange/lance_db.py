"""A table of LanceDB: one line per row, with the vectors in the column `vector`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import first_line
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.packages import import_package
from likewise.curate.exchange.records import DEFAULT_NAME, Records, arrow_kind, check_utf8, from_cells

VECTOR_COLUMN = "vector"
"""Name that LanceDB searches by default."""
SIMILARITY_KEY = b"likewise.similarity"
"""Key of the schema's metadata."""


@contextmanager
def connect(place: str) -> Iterator:
    """Yield the database in a folder; errors of the package become LikewiseError."""
    lancedb = import_package("lancedb", "lancedb")
    try:
        yield lancedb.connect(str(Path(place).expanduser()))
    except LikewiseError:
        raise
    except Exception as error:  # the package raises many types for damaged or locked folders
        raise LikewiseError(
            f"lancedb: '{place}' must be a folder of LanceDB, but it cannot be used ({first_line(error)}); check the folder"
        ) from None


def table_names(base) -> list[str]:
    """Return the names of all tables of a database."""
    return sorted(base.table_names(limit=10**6))


def send(records: Records, config: Send) -> list[str]:
    """Write the records as a new table; replacing a table is one atomic change."""
    import pyarrow as pa

    check_utf8(records, "lancedb")
    x, name = records.x, config.name or DEFAULT_NAME
    assert x is not None
    if VECTOR_COLUMN in records.columns:
        raise LikewiseError(f"lancedb: a column must not be called {VECTOR_COLUMN}, which holds the vectors; rename it")
    kinds = {column: arrow_kind(column) for column in records.columns}
    columns = {column: pa.array(cells, kinds[column]) for column, cells in records.columns.items()}
    flat = pa.array(np.ascontiguousarray(x).reshape(-1))
    columns = {
        "row": pa.array(records.row),
        **columns,
        VECTOR_COLUMN: pa.FixedSizeListArray.from_arrays(flat, x.shape[1]),
    }
    table = pa.table(columns).replace_schema_metadata({SIMILARITY_KEY: records.similarity.encode()})
    with connect(config.out) as base:
        if name in table_names(base) and not config.replace:
            known = base.open_table(name)
            size = (
                getattr(known.schema.field(VECTOR_COLUMN).type, "list_size", 0)
                if VECTOR_COLUMN in known.schema.names
                else 0
            )
            raise LikewiseError(
                f"lancedb: the table must be new, but '{name}' exists, with {known.count_rows()} rows and vectors of {size} "
                f"dimensions (these have {x.shape[1]}); choose another --name, or replace it with --replace"
            )
        base.create_table(name, table, mode="overwrite")
    return []


def receive(config: Receive) -> Records:
    """Return all lines of a table, with vectors and columns unchanged."""
    name = config.name or DEFAULT_NAME
    if not Path(config.source).expanduser().is_dir():
        raise LikewiseError(f"lancedb: the source must be a folder of LanceDB, got '{config.source}'; check the path")
    with connect(config.source) as base:
        known = table_names(base)
        if name not in known:
            raise LikewiseError(
                f"lancedb: there is no table '{name}'; there are: {', '.join(known) or 'none'}; name it by --name"
            )
        table = base.open_table(name).to_arrow()
    if VECTOR_COLUMN not in table.column_names or not hasattr(table.schema.field(VECTOR_COLUMN).type, "value_type"):
        raise LikewiseError(
            f"lancedb: the table must have vectors in the column {VECTOR_COLUMN}, got the columns "
            f"{', '.join(table.column_names)}; rename the one that holds them"
        )
    x = table.column(VECTOR_COLUMN).to_pylist()
    cells = {column: table.column(column).to_pylist() for column in table.column_names if column != VECTOR_COLUMN}
    similarity = (table.schema.metadata or {}).get(SIMILARITY_KEY, b"cosine").decode()
    return from_cells(cells, "lancedb", x, similarity)
