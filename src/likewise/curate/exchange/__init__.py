"""Exchange with other tools: rows, vectors and suggested labels go out; vectors, labels and decisions come back.

Every tool is one module with two functions: `send(records, options) -> notes` and `receive(options) -> Records`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TOOL_BY_NAME", "Tool"]


class Tool(NamedTuple):
    """A tool that rows are sent to and received from."""

    module: str  # of this package
    needs: str  # what every row must have: "images", "vectors" or "" (a label is enough)
    summary: str


TOOL_BY_NAME = {
    "label-studio": Tool("label_studio", "images", "tasks with predictions, and decisions back; --out is a folder"),
    "hugging-face": Tool("imagefolder", "images", "an imagefolder with metadata; --out is a new folder"),
    "csv": Tool("csv_table", "", "a table with any column names; --out is a .csv file"),
    "parquet": Tool("parquet_table", "vectors", "a table with the vectors in the column x; --out is a .parquet file"),
    "cvat": Tool("cvat", "images", "tags in its XML format, and decisions back; --out is a folder"),
}
"""Name of a tool in `--to` and `--from` -> its module, what it needs and what is written."""
