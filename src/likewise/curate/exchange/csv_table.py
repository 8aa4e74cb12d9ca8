"""CSV tables with any column names."""

from __future__ import annotations

from pathlib import Path

from likewise.core.errors import LikewiseError
from likewise.core.files import check_output_path, write_csv
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.row_records import Records, check_free, check_source, from_cells
from likewise.data.tabular import read_csv


def send(records: Records, config: Send) -> list[str]:
    """Write the records as a CSV file; `--columns OURS=THEIRS` renames columns."""
    out = check_output_path(config.out, ".csv", "csv")
    check_free([out], "csv", config.replace)
    names = renamed(config.columns)
    ours = [*records.columns, "row"]
    unknown = next((name for name in names if name not in ours), None)
    if unknown is not None:
        raise LikewiseError(
            f"csv: --columns must rename columns that are sent, got {unknown!r}; there are: {', '.join(ours)}"
        )
    head = [names.get(name, name) for name in ours]
    if len(set(head)) != len(head):
        twice = next(name for place, name in enumerate(head) if name in head[:place])
        raise LikewiseError(
            f"csv: every column must have its own name, but two would be {twice!r}; choose another name"
        )
    write_csv(out, head, zip(*records.plain_columns().values(), records.row.tolist()))
    return [] if records.x is None else ["vectors are not in a CSV table; --to parquet writes them, too"]


def receive(config: Receive) -> Records:
    """Read a CSV file; `--columns OURS=THEIRS` names columns that are called otherwise there. All columns are kept."""
    file = Path(config.source).expanduser()
    check_source(file, "csv", "a file")
    sheet = read_csv(str(file), "csv")
    names = renamed(config.columns)
    unknown = next((theirs for theirs in names.values() if theirs not in sheet.column), None)
    if unknown is not None:
        raise LikewiseError(
            f"csv: --columns must name columns of {file.name}, got {unknown!r}; it has: {', '.join(sheet.column)}"
        )
    cells = {name: column for name, column in sheet.column.items() if name not in names.values()}
    cells |= {ours: sheet.column[theirs] for ours, theirs in names.items()}
    if not {"row", "path"} & cells.keys():
        raise LikewiseError(
            f"csv: {file.name} must have a column row or path, got: {', '.join(cells)}; name it: --columns path=COLUMN "
            "(lines are not matched by their order)"
        )
    if "label" not in cells and "labels" not in cells:
        raise LikewiseError(
            f"csv: {file.name} must have a column label or labels, got: {', '.join(cells)}; name it: --columns label=COLUMN"
        )
    return from_cells(cells, "csv")


def renamed(words: tuple[str, ...]) -> dict[str, str]:
    """Return our name -> their name of a column, from words such as `label=class`."""
    found: dict[str, str] = {}
    for word in words:
        ours, mark, theirs = word.partition("=")
        if not (ours and mark and theirs) or ours in found or theirs in found.values():
            raise LikewiseError(
                f"csv: --columns must be OURS=THEIRS, each name once, got {word!r}; write --columns path=image label=class"
            )
        found[ours] = theirs
    return found
