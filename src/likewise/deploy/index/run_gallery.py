"""The gallery of a run: the embeddings of all images of its data, or of its test split."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from likewise.core.settings import Search
from likewise.core.types import Items, LikewiseError
from likewise.data.features import read_embeddings
from likewise.runs.embeddings import ALL_EMBEDDINGS_FILE, EMBEDDINGS_FILE, origin, save_embeddings
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun

SEARCHED_SPLITS = ("train", "val", "test")
"""The splits of a gallery of all images. A row of two splits, such as a training row in a test gallery, counts as the first."""


def gallery_of_run(run: Run, config: Search, say: Callable[[str], None]) -> tuple[Items, dict]:
    """Return the embeddings of a run for `config.split`, and their origin. Embeddings that do not exist yet are written first."""
    file = run.path / (EMBEDDINGS_FILE if config.split == "test" else ALL_EMBEDDINGS_FILE)
    if not (file.exists() if config.split == "test" else is_current(file, run)):
        options = {name: getattr(config, name) for name in ("device", "allow_imports", "workers", "quiet")}
        opened = OpenRun(run, say=say, **options)
        write_test_split(opened) if config.split == "test" else write_all(opened, file)
    return read_embeddings(str(file)), origin(file)


def write_test_split(opened: OpenRun) -> None:
    """Evaluate a run, which writes the embeddings of its test split."""
    from likewise.score.evaluate import evaluate_open

    if not opened.protocol.has_test_split:
        raise LikewiseError(
            f"search: '{opened.run.path}' must have a test split for --split test, but all of its data trained; "
            "drop --split test to search all images"
        )
    evaluate_open(opened, opened.settings.metrics)


def write_all(opened: OpenRun, file: Path) -> None:
    """Embed all rows that are in a split, and write them with their splits and a checksum of the network."""
    from likewise.score.scoring import as_compared

    items, protocol = opened.items, opened.protocol
    split = np.full(len(items), "", "<U5")
    for part in reversed(SEARCHED_SPLITS):
        if part != "test" or protocol.has_test_split:
            split[protocol.rows(items, part)] = part
    rows = np.flatnonzero(split != "")
    stamp = network_stamp(opened.run, opened.checkpoint)
    e = as_compared(opened.embed(items, rows, title="embed all images"), opened.similarity)
    made_by = {"run": opened.run.path, "checkpoint": opened.checkpoint, "similarity": opened.similarity}
    save_embeddings(file, e, items, made_by | {"checksum": stamp["weights"]}, split[rows])


def is_current(file: Path, run: Run) -> bool:
    """Whether the file has the embeddings of the present network of the run."""
    if not file.exists():
        return False
    made_by = origin(file)
    return made_by.get("checksum") == str(network_stamp(run, made_by.get("checkpoint", "best"))["weights"])


def network_stamp(run: Run, checkpoint: str) -> dict:
    """Return what identifies a network: its run folder, the run's identity, and a checksum of the weights."""
    file = run.path / run.network(checkpoint)
    weights = zlib.crc32(file.read_bytes()) if checkpoint != "untrained" and file.exists() else 0
    return {"run": str(run.path.absolute()), "identity": run.about["identity"], "weights": weights}


def trained_classes(items: Items) -> list[str]:
    """Return the names of the classes with a training row; [] if the embeddings do not record their splits."""
    if items.split is None:
        return []
    return [items.class_name[label] for label in np.unique(items.y[items.split == "train"])]
