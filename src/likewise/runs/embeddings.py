"""embeddings.npz: the embeddings that `evaluate` and `likewise embed` write, with the run that computed them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.errors import DiskFull
from likewise.core.files import atomic_write, load_arrays, reason_of
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.schema import BOX_CORNERS, coarse_cells
from likewise.data.shards import column_of, is_shards, read_index

EMBEDDINGS_FILE = "embeddings.npz"
"""File of the run folder: embeddings of the split that was evaluated."""
ALL_EMBEDDINGS_FILE = "all_embeddings.npz"
"""File of the run folder: embeddings of the images of all splits, with a checksum of the network."""
ORIGIN_WORDS = ("run", "checkpoint", "checksum", "similarity", "data", "network")
"""What a file of embeddings stores about its origin: the run or the network, and the fingerprint of the data."""


def save_embeddings(
    file: Path,
    e: Embedded,
    items: Items,
    made_by: dict,
    split: str | np.ndarray | None = None,
    sides: tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]] | None = None,
) -> None:
    """Write embeddings to an npz file that `train`, `evaluate`, `search` and other tools can read. Its paths are absolute.

    Args:
        made_by: some of `ORIGIN_WORDS`, which `origin` returns.
        split: the split of all rows, or of each row; replaces the `split` column of the data.
        sides: masks of the queries and of the gallery rows; replace the `query` and `gallery` columns of the data.
    """
    rows = e.row.numpy()
    columns: dict[str, np.ndarray] = {"x": e.z.numpy(), "label": items.y[rows]}
    columns["class_name"] = np.asarray([items.class_name[label] for label in items.y[rows]], dtype=str)
    if items.label_sets is not None:
        columns["labels"] = columns["class_name"]  # its presence marks names that join several labels
    if (coarse := coarse_cells(columns["class_name"].tolist(), items.taxonomy)) is not None:
        columns["coarse"] = np.asarray(coarse, dtype=str)
    columns |= row_columns(items, rows)
    if items.path is not None:
        columns["root"] = np.asarray(str(Path(items.root).absolute()), dtype=str)
    if split is not None:
        columns["split"] = np.broadcast_to(np.asarray(split, str), len(rows))
    if sides is not None:  # without marks, every row is a query and a gallery row
        columns = {name: own for name, own in columns.items() if name not in ("query", "gallery")}
        if not all(side.all() for side in sides):
            columns["query"], columns["gallery"] = sides
    if sides is not None and items.gallery_name is not None and "gallery" in columns:
        columns["gallery"] = np.where(columns["gallery"], items.gallery_name[rows], "")
    words = made_by | ({"run": Path(made_by["run"]).absolute()} if "run" in made_by else {})
    columns |= {name: np.asarray(str(word), dtype=str) for name, word in words.items()}
    try:
        write_arrays(file, columns)
    except (OSError, DiskFull) as error:  # a full disk, a folder that was removed: the computed rows must not be lost
        kept = Path(tempfile.mkdtemp(prefix="likewise-")) / file.name
        try:
            write_arrays(kept, columns)
        except (OSError, DiskFull):
            raise error from None
        raise LikewiseError(
            f"embeddings: {file} could not be written ({reason_of(error)}); the computed rows are in {kept}: make the folder "
            "writable and move the file there"
        ) from None


def row_columns(items: Items, rows: Int[np.ndarray, "n"]) -> dict[str, np.ndarray]:
    """Return what is stored about these rows besides their labels: row number, absolute path, and the columns of a table."""
    columns: dict[str, np.ndarray] = {"row": rows}
    if items.path is not None:
        base = Path(items.root).absolute()
        columns["path"] = np.asarray([str(base / items.path[r]) for r in rows], dtype=str)
    columns |= {
        name: np.asarray(own[rows])
        for name in ("split", "query", "gallery", "group", "camera", "junk")
        if (own := getattr(items, name)) is not None
    }
    if items.gallery_name is not None and "gallery" in columns:
        columns["gallery"] = np.where(columns["gallery"], items.gallery_name[rows], "")
    if items.box is not None:
        columns |= dict(zip(BOX_CORNERS, items.box[rows].T))
    return columns


def write_arrays(file: Path, columns: dict[str, np.ndarray]) -> None:
    """Write arrays to an npz file, atomically."""
    with atomic_write(file) as aside, aside.open("wb") as out:
        np.savez(out, **columns)  # pyright: ignore[reportArgumentType]


def origin(file: Path) -> dict:
    """Return the origin of an embeddings file or folder: `ORIGIN_WORDS` and the rows of the data, as far as stored."""
    if is_shards(file):
        return origin_of_shards(file)
    if file.suffix.lower() != ".npz":
        return {}
    stored = load_arrays(file, "features", "save it again", (*ORIGIN_WORDS, "row"), need=False)
    row = {name: stored.pop(name) for name in ("row",) if name in stored}
    # An array with one of these names is a column of other data.
    words = {name: str(word) for name, word in stored.items() if word.ndim == 0}
    check_similarity(words, file)
    return words | row


def origin_of_shards(folder: Path) -> dict:
    """Return the origin of a folder of shards: `ORIGIN_WORDS` and the rows of the data, as far as stored."""
    told = read_index(folder).about
    words = {name: str(told[name]) for name in ORIGIN_WORDS if name in told}
    check_similarity(words, folder)
    row = column_of(folder, "row")
    return words | ({} if row is None else {"row": row})


def check_similarity(words: dict[str, str], file: Path) -> None:
    """Raise for a stored similarity that does not exist."""
    if words.get("similarity", "cosine") not in ("cosine", "euclidean"):
        raise LikewiseError(
            f"features: similarity in {file.name} must be cosine or euclidean, got {words['similarity']!r}; save it again"
        )


def with_paths_below_root(items: Items, file: Path, root: str | None = None) -> Items:
    """Return the items of an embeddings file with paths relative to the folder of the data, as in the data's own table.

    Without a stored folder, or if some path is not below it, the items are returned as they are.

    Args:
        root: folder of the images now, if they were moved.
    """
    if items.path is None or (stored := stored_root(file)) is None:
        return items
    base = os.path.join(stored, "")
    if not all(path.startswith(base) for path in items.path):
        return items
    paths = tuple(path.removeprefix(base) for path in items.path)
    return replace(items, path=paths, root=os.path.abspath(os.path.expanduser(root)) if root else stored)


def stored_root(file: Path) -> str | None:
    """Return the folder of the images that an embeddings file or a folder of shards records, if any."""
    if is_shards(file):
        root = read_index(file).about.get("root")
        return root if isinstance(root, str) else None
    if file.suffix.lower() != ".npz":
        return None
    stored = load_arrays(file, "features", "save it again", ("root",), need=False).get("root")
    return None if stored is None or stored.ndim or stored.dtype.kind != "U" else str(stored)


def rows_in(made_by: dict, count: int) -> Int[np.ndarray, "N"]:
    """Return the rows of the data from the result of `origin`; 0 to count - 1 if its "row" is missing or something else."""
    row = made_by.get("row", np.empty(0))
    differ = row.shape == (count,) and row.dtype.kind in "iu" and len(np.unique(row)) == count
    return row.astype(np.int64) if differ and row.min() >= 0 else np.arange(count)
