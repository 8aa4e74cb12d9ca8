"""A table of PostgreSQL with the extension pgvector: one line per row, with the vectors in the column `embedding`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import first_line
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.packages import import_package
from likewise.curate.exchange.records import DEFAULT_NAME, LIST_COLUMNS, NUMBER_COLUMNS, Records, check_utf8, from_cells

VECTOR_COLUMN = "embedding"
MAX_NAME_BYTES = 63
"""PostgreSQL cuts longer names."""
MAX_DIMENSIONS_COUNT = 16_000
"""Largest dimension of the type vector."""


@contextmanager
def connect(place: str) -> Iterator:
    """Yield a connection in one transaction; errors of the server become LikewiseError, and nothing is written."""
    psycopg = import_package("psycopg", "pgvector")
    register_vector = import_package("pgvector.psycopg", "pgvector").register_vector
    if not place.startswith(("postgresql://", "postgres://")):
        raise LikewiseError(
            f"pgvector: the address must be postgresql://USER@HOST/DATABASE, got '{place}'; write it so"
        )
    try:
        with psycopg.connect(place) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            register_vector(connection)
            yield connection
    except (psycopg.Error, UnicodeError) as error:
        raise LikewiseError(
            f"pgvector: the database must be one that you may write, but the server refused ({first_line(error)}); check the "
            "address, and that the extension vector is installed"
        ) from None


def send(records: Records, config: Send) -> list[str]:
    """Create a table and copy the records into it, in one transaction."""
    sql = import_package("psycopg.sql", "pgvector")
    x, name = records.x, config.name or DEFAULT_NAME
    assert x is not None
    check_utf8(records, "pgvector")
    check_names([name, *records.columns], x.shape[1])
    table, kinds = sql.Identifier(name), {}
    for column in records.columns:
        kinds[column] = (
            "double precision" if column in NUMBER_COLUMNS else "text[]" if column in LIST_COLUMNS else "text"
        )
    parts = [sql.SQL('"row" bigint PRIMARY KEY')]
    parts += [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in kinds.items()]
    parts.append(sql.SQL("{} vector({})").format(sql.Identifier(VECTOR_COLUMN), sql.Literal(x.shape[1])))
    with connect(config.out) as connection:
        if (known := shape_of(connection, name)) is not None:
            if not config.replace:
                raise LikewiseError(
                    f"pgvector: the table must be new, but '{name}' exists, with {known[0]} rows and vectors of {known[1]} "
                    f"dimensions (these have {x.shape[1]}); choose another --name, or replace it with --replace"
                )
            connection.execute(sql.SQL("DROP TABLE {}").format(table))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts)))
        comment = sql.Literal(f"likewise: {records.similarity}")
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, comment))
        copy_in = sql.SQL("COPY {} FROM STDIN WITH (FORMAT BINARY)").format(table)
        with connection.cursor().copy(copy_in) as copy:
            copy.set_types(["int8", *("float8" if kind.startswith("d") else kind for kind in kinds.values()), "vector"])
            for line, vector in zip(records.lines(), x):
                copy.write_row((*line.values(), vector))
    return []


def check_names(names: list[str], dimension: int) -> None:
    """Raise for names and dimensions that PostgreSQL cannot hold."""
    for name in names:
        if name == VECTOR_COLUMN or len(name.encode()) > MAX_NAME_BYTES:
            raise LikewiseError(
                f"pgvector: a name must have at most {MAX_NAME_BYTES} bytes and not be {VECTOR_COLUMN}, got {name!r}; rename it"
            )
    if dimension > MAX_DIMENSIONS_COUNT:
        raise LikewiseError(
            f"pgvector: vectors must have at most {MAX_DIMENSIONS_COUNT} dimensions, got {dimension}; train with a smaller --dim"
        )


def shape_of(connection, name: str) -> tuple[int, int] | None:
    """Return the number of rows of a table and the dimension of its vectors (0: none); None if there is no such table."""
    sql = import_package("psycopg.sql", "pgvector")
    found = connection.execute("SELECT to_regclass(quote_ident(%s))::oid", (name,)).fetchone()[0]
    if found is None:
        return None
    dimension = connection.execute(
        "SELECT atttypmod FROM pg_attribute WHERE attrelid = %s AND attname = %s", (found, VECTOR_COLUMN)
    ).fetchone()
    rows = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()[0]
    return rows, max(0, dimension[0]) if dimension else 0


def receive(config: Receive) -> Records:
    """Return all lines of a table, with vectors and columns unchanged."""
    sql = import_package("psycopg.sql", "pgvector")
    name = config.name or DEFAULT_NAME
    with connect(config.source) as connection:
        if shape_of(connection, name) is None:
            raise LikewiseError(f"pgvector: there is no table '{name}' in the database; name it by --name")
        comment = (
            connection.execute("SELECT obj_description(to_regclass(quote_ident(%s)))", (name,)).fetchone()[0] or ""
        )
        cursor = connection.cursor(binary=True)
        cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)))
        names, lines = [column.name for column in cursor.description or ()], cursor.fetchall()
    if VECTOR_COLUMN not in names:
        raise LikewiseError(
            f"pgvector: the table must have a column {VECTOR_COLUMN}, got the columns {', '.join(names)}; rename the one "
            "that holds the vectors"
        )
    columns = dict(zip(names, zip(*lines))) if lines else {}
    x = [np.asarray(one.to_numpy() if hasattr(one, "to_numpy") else one) for one in columns.pop(VECTOR_COLUMN, ())]
    return from_cells(columns, "pgvector", x, "euclidean" if comment.endswith("euclidean") else "cosine")
