"""What evaluation leaves behind and reads again: embeddings, and one line a query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from likewise.config import Train
from likewise.data.hugging_face import is_saved
from likewise.data.schema import CORNERS
from likewise.data.tabular import read_csv
from likewise.io.files import cache_folder, first_line, load_arrays, write_aside
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores


def save_embeddings(
    file: Path,
    e: Embedded,
    items: Items,
    made_by: dict,
    part: str | None = None,
    sides: tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]] | None = None,
) -> None:
    """Embeddings as a file that train, evaluate, search and other tools read. `made_by` is what `origin` gives back.

    Args:
        part: the part of the data that these rows are, in place of what the data says.
        sides: who asks and who answers among them, in place of what the data says.
    """
    rows = e.row.numpy()
    columns: dict[str, np.ndarray] = {"x": e.z.numpy(), "label": items.y[rows], "row": rows}
    columns["class_name"] = np.asarray([items.class_name[label] for label in items.y[rows]], dtype=str)
    if items.path is not None:
        base = Path(items.root).absolute()
        columns["path"] = np.asarray([str(base / items.path[r]) for r in rows], dtype=str)
    columns |= {
        name: np.asarray(own[rows])
        for name in ("split", "query", "gallery", "group")
        if (own := getattr(items, name)) is not None
    }
    if part is not None:
        columns["split"] = np.full(len(rows), part)
    if sides is not None:  # everybody asks and answers where nobody is marked
        columns = {name: own for name, own in columns.items() if name not in ("query", "gallery")}
        if not all(side.all() for side in sides):
            columns["query"], columns["gallery"] = sides
    if items.gallery_name is not None and "gallery" in columns:
        columns["gallery"] = np.where(columns["gallery"], items.gallery_name[rows], "")
    if items.box is not None:
        columns |= dict(zip(CORNERS, items.box[rows].T))
    words = made_by | ({"run": Path(made_by["run"]).absolute()} if "run" in made_by else {})
    columns |= {name: np.asarray(str(word), dtype=str) for name, word in words.items()}
    with write_aside(file) as aside, aside.open("wb") as out:
        np.savez(out, **columns)  # pyright: ignore[reportArgumentType]


def origin(file: Path) -> dict:
    """What an embedding file says of itself: the run and which of its networks made it, how to compare, and the data's rows."""
    if file.suffix.lower() != ".npz":
        return {}
    said = load_arrays(file, "features", "save it again", ("run", "which", "similarity", "row"), need=False)
    row = {name: said.pop(name) for name in ("row",) if name in said}
    words = {name: str(word) for name, word in said.items() if word.ndim == 0}  # a column is something of others
    if words.get("similarity", "cosine") not in ("cosine", "euclidean"):
        raise LikewiseError(
            f"features: similarity in {file.name} must be cosine or euclidean, got {words['similarity']!r}; save it again"
        )
    return words | row


def data_folders(settings: Train | None) -> list[str]:
    """Return the folders that the pictures of a run may lie in by its settings; the cache, where they are unpacked there."""
    if settings is None:
        return []
    data = Path(settings.data).expanduser()
    if settings.data.startswith("hf:") or data.suffix.lower() == ".parquet" or is_saved(data):
        return [str(cache_folder()), str(data.parent)] if data.exists() else [str(cache_folder())]
    return [str(data if data.is_dir() else data.parent), *([settings.root] if settings.root else [])]


def tell_outside(files: Sequence[str], folders: Sequence[str]) -> str:
    """Return a sentence about files that lie in none of these folders; "" where there are none.

    A foreign file of embeddings may name any picture on this machine, and who publishes a page should know.
    """
    homes = [os.path.join(os.path.realpath(folder), "") for folder in folders if folder]
    real = {folder: os.path.join(os.path.realpath(folder), "") for folder in set(map(os.path.dirname, files))}
    strange = [file for file in files if not real[os.path.dirname(file)].startswith(tuple(homes))]
    if not strange:
        return ""
    return (
        f"{len(strange)} of {len(files)} pictures lie outside of its data (first: {strange[0]}), for its file of embeddings "
        "names them; look whether you want to show them"
    )


def rows_in(made_by: dict, count: int) -> Int[np.ndarray, "N"]:
    """The data's rows by what `origin` says, or 0 to count - 1: others may call something else so."""
    row = made_by.get("row", np.empty(0))
    differ = row.shape == (count,) and row.dtype.kind in "iu" and len(np.unique(row)) == count
    return row.astype(np.int64) if differ and row.min() >= 0 else np.arange(count)


def write_per_query(file: Path, scores: Scores, found: Retrieval, e: Embedded, items: Items) -> None:
    """One line a query: what it is, every metric, and its first answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = e.row.numpy()
    answers = np.where(found.row.numpy() >= 0, row[found.row.clamp_min(0).numpy()], -1)
    columns = {
        "row": scores.query,
        "label": items.y[scores.query],
        "class_name": [items.class_name[i] for i in items.y[scores.query]],
        "relevant": found.relevant.numpy(),
        **scores.each,
        "nearest": list(answers),
        "nearest_similarity": list(found.sim.float().numpy()),
    }
    if items.path is not None:
        columns["path"] = [items.path[i] for i in scores.query]
    with write_aside(file) as aside:
        pq.write_table(pa.table(columns), aside)


@dataclass(frozen=True, eq=False)
class PerQuery:
    """One line a query, as `write_per_query` left it. `each` holds the metrics."""

    row: Int[np.ndarray, "Q"]
    label: Int[np.ndarray, "Q"]
    class_name: np.ndarray
    relevant: Int[np.ndarray, "Q"]
    each: dict[str, Float[np.ndarray, "Q"]]
    nearest: Int[np.ndarray, "Q K"]
    similarity: Float[np.ndarray, "Q K"]
    path: np.ndarray | None = None


def read_per_query(path: Path, owner: str, metrics: Sequence[str] | None = None) -> PerQuery:
    """What `write_per_query` wrote, or an error in the owner's name.

    Args:
        metrics: read these alone, those of them that are there, and no neighbours, which is ten times as fast.
    """
    advice = "give a run folder, or the per_query.parquet that `likewise evaluate` leaves in it"
    if not path.is_file():
        raise LikewiseError(f"{owner}: there is no file '{path}'; {advice}")
    try:
        return _read_per_query(path, owner, metrics, advice)
    except LikewiseError:
        raise
    except Exception as error:  # pyarrow and numpy raise many kinds for damaged files
        raise LikewiseError(
            f"{owner}: '{path}' is not a parquet file or damaged ({first_line(error)}); {advice}"
        ) from None


def _read_per_query(path: Path, owner: str, metrics: Sequence[str] | None, advice: str) -> PerQuery:
    import pyarrow.parquet as pq

    wanted = None if metrics is None else ["row", "label", "class_name", "relevant", *metrics]
    known = pq.read_schema(path).names
    table = pq.read_table(path, columns=wanted and [name for name in wanted if name in known])
    plain = ("row", "label", "class_name", "relevant", "nearest", "nearest_similarity")
    if missing := [name for name in plain if name not in known]:
        raise LikewiseError(f"{owner}: '{path}' has no column {', '.join(missing)}; {advice}")
    column = {name: table[name].to_numpy() for name in table.column_names if name not in plain[4:]}
    if not len(table) or len(np.unique(column["row"])) < len(table):
        raise LikewiseError(
            f"{owner}: '{path}' must hold one line a query, got {len(table)} lines or a row twice; {advice}"
        )
    nothing = {"nearest": np.zeros((len(table), 0), np.int64), "nearest_similarity": np.zeros((len(table), 0))}
    shown = nothing | {
        name: table[name].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        for name in plain[4:]
        if name in table.column_names
    }
    return PerQuery(
        **{name: column[name] for name in plain[:4]}, nearest=shown["nearest"], similarity=shown["nearest_similarity"],
        each={name: value for name, value in column.items() if value.dtype.kind == "f"}, path=column.get("path"),
    )  # fmt: skip


def find_target(target: str, owner: str) -> Path:
    path = Path(target).expanduser()
    if not path.exists():
        raise LikewiseError(f"{owner}: there is no '{target}'; give a run folder, or a file of embeddings")
    return path


def read_pairs(file: str | None, items: Items) -> Int[np.ndarray, "M 2"] | None:
    """Pairs of rows that are no answers to each other, in a .csv with row_a,row_b or path_a,path_b; an audit's has row,other."""
    if file is None:
        return None
    sheet = read_csv(file, "exclude")
    pairs = (("row_a", "row_b"), ("path_a", "path_b"), ("row", "other"))
    cells: list[list[Any]] = [[sheet.column.get(name) for name in pair] for pair in pairs]
    rows, paths, audited = (None if None in pair else pair for pair in cells)
    rows = audited if rows is None and paths is None else rows
    if (rows is None) == (paths is None):
        raise LikewiseError(
            f"exclude: {sheet.file} must have the columns row_a,row_b or path_a,path_b, got {', '.join(sheet.column)}; "
            "an audit's duplicates.csv will do as it is"
        )
    if rows is not None:
        try:
            return np.asarray(rows, dtype=np.int64).T.reshape(-1, 2)
        except ValueError:
            raise LikewiseError(f"exclude: rows in {sheet.file} must be whole numbers, counted from 0") from None
    if items.path is None:
        raise LikewiseError(f"exclude: '{items.name}' has no paths; name pairs by row_a,row_b in {sheet.file}")
    place = {path: row for row, path in enumerate(items.path)}
    assert paths is not None
    unknown = [path for path in (*paths[0], *paths[1]) if path not in place]
    if unknown:
        raise LikewiseError(
            f"exclude: {len(unknown)} paths of {sheet.file} are not in '{items.name}' (first: {unknown[0]}); write them as "
            "in the data"
        )
    return np.asarray([[place[path] for path in side] for side in paths], dtype=np.int64).T.reshape(-1, 2)
