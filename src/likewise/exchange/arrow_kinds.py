"""Types of the columns of records in Arrow, which several tools store."""

from __future__ import annotations

from likewise.exchange.records import LIST_COLUMNS, NUMBER_COLUMNS


def arrow_kind(column: str):
    """Return the type of a column: numbers, lists of texts, or texts."""
    import pyarrow as pa

    return (
        pa.float64() if column in NUMBER_COLUMNS else pa.list_(pa.string()) if column in LIST_COLUMNS else pa.string()
    )
