"""What evaluation leaves behind and reads again: embeddings, and one line a query."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from likewise.data.columns import CORNERS
from likewise.run import write_aside
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores


def save_embeddings(file: Path, e: Embedded, items: Items, made_by: dict) -> None:
    """Embeddings as a file that train, evaluate, search and other tools read. `made_by` is what `origin` gives back."""
    rows = e.row.numpy()
    columns: dict[str, np.ndarray] = {"x": e.z.numpy(), "label": items.y[rows], "row": rows}
    columns["class_name"] = np.asarray([items.class_name[label] for label in items.y[rows]], dtype=str)
    if items.path is not None:
        base = Path(items.root).absolute()
        columns["path"] = np.asarray([str(base / items.path[r]) for r in rows], dtype=str)
    for name in ("split", "query", "gallery", "group"):
        if getattr(items, name) is not None:
            columns[name] = np.asarray(getattr(items, name)[rows])
    if items.box is not None:
        columns |= dict(zip(CORNERS, items.box[rows].T))
    words = made_by | {"run": Path(made_by["run"]).absolute()}
    columns |= {name: np.asarray(str(word), dtype=str) for name, word in words.items()}
    with write_aside(file) as aside, aside.open("wb") as out:
        np.savez(out, **columns)


def origin(file: Path) -> dict:
    """What an embedding file says of itself: the run and which of its networks made it, how to compare, and the data's rows."""
    if file.suffix.lower() != ".npz":
        return {}
    with np.load(file, allow_pickle=False) as data:
        words = {name: str(data[name]) for name in ("run", "which", "similarity") if name in data.files}
        return words | ({"row": data["row"]} if "row" in data.files else {})


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


def find_target(target: str, owner: str) -> Path:
    path = Path(target).expanduser()
    if not path.exists():
        raise LikewiseError(f"{owner}: there is no '{target}'; give a run folder, or a file of embeddings")
    return path
