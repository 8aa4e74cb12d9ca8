"""trained.npz: keys of the samples that a run trained on or validated with, and the names of their classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, UInt8

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays
from likewise.core.types import Items
from likewise.data.content_keys import KEY_BYTES, content_keys, is_known

TRAINED_FILE = "trained.npz"


@dataclass(frozen=True, eq=False)
class Trained:
    """Samples in the train and val splits of a run, by their content: they are found in any other data set."""

    key: UInt8[np.ndarray, "n 16"]
    class_name: tuple[str, ...]  # classes of these samples

    def has(self, items: Items, rows: Int[np.ndarray, "m"]) -> Bool[np.ndarray, "m"]:
        """Return which rows of a data set have the content of a sample that trained."""
        return is_known(content_keys(items, rows), self.key)


def find_trained(items: Items, rows: Int[np.ndarray, "n"]) -> Trained:
    """Return the samples in these rows, the train and val splits of the data."""
    names = tuple(items.class_name[label] for label in np.unique(items.y[rows]).tolist())
    return Trained(content_keys(items, rows), names)


def write_trained(folder: Path, items: Items, rows: Int[np.ndarray, "n"]) -> None:
    """Write trained.npz into a run folder, unless it is there: the data of a run does not change."""
    if (folder / TRAINED_FILE).exists():
        return
    found = find_trained(items, rows)
    with atomic_write(folder / TRAINED_FILE) as aside, aside.open("wb") as file:
        np.savez(file, key=found.key, class_name=np.asarray(found.class_name, dtype=str))


def read_trained(folder: Path) -> Trained | None:
    """Return the content of trained.npz; None for a run of an older version, which has none."""
    file = folder / TRAINED_FILE
    if not file.exists():
        return None
    advice = "delete it: it is then read from the data of the run"
    stored = load_arrays(file, "run", advice, {"key": ("u", 2), "class_name": ("U", 1)})
    if stored["key"].dtype != np.uint8 or stored["key"].shape[1] != KEY_BYTES:
        raise LikewiseError(f"run: {file} is damaged (a key must have {KEY_BYTES} bytes); {advice}")
    return Trained(stored["key"], tuple(stored["class_name"].tolist()))
