"""embeddings.npz: the embeddings that evaluating a run leaves, or `likewise embed` writes, and where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from likewise.data.schema import CORNERS
from likewise.io.files import load_arrays, write_aside
from likewise.types import Embedded, Items, LikewiseError

EMBEDDINGS = "embeddings.npz"


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
    said = load_arrays(file, "features", "save it again", ("run", "checkpoint", "similarity", "row"), need=False)
    row = {name: said.pop(name) for name in ("row",) if name in said}
    words = {name: str(word) for name, word in said.items() if word.ndim == 0}  # a column is something of others
    if words.get("similarity", "cosine") not in ("cosine", "euclidean"):
        raise LikewiseError(
            f"features: similarity in {file.name} must be cosine or euclidean, got {words['similarity']!r}; save it again"
        )
    return words | row


def rows_in(made_by: dict, count: int) -> Int[np.ndarray, "N"]:
    """The data's rows by what `origin` says, or 0 to count - 1: others may call something else so."""
    row = made_by.get("row", np.empty(0))
    differ = row.shape == (count,) and row.dtype.kind in "iu" and len(np.unique(row)) == count
    return row.astype(np.int64) if differ and row.min() >= 0 else np.arange(count)
