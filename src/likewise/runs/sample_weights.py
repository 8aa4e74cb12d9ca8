"""sample_weights.npz: label, suspicion and weight of every training sample at the end of a training with a confidence."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays

SAMPLE_WEIGHTS_FILE = "sample_weights.npz"
RESTART_HINT = "use --restart to train the run again"
ARRAY_KINDS = {"row": ("iu", 1), "given": ("U", 1), "label": ("U", 1), "suspicion": ("f", 1), "weight": ("f", 1)}
"""Kinds of dtype and dimensions of the arrays."""


class FinalWeights(NamedTuple):
    """One entry for every training sample. Weight 0: dropped; NaN: the sample was in no batch."""

    row: Int[np.ndarray, "n"]  # of the data
    given: np.ndarray  # class name of the given label
    label: np.ndarray  # class name of the label at the end of training
    suspicion: Float[np.ndarray, "n"]
    weight: Float[np.ndarray, "n"]

    @property
    def dropped(self) -> Bool[np.ndarray, "n"]:
        """Mask of the samples that were dropped."""
        return self.weight == 0

    @property
    def relabelled(self) -> Bool[np.ndarray, "n"]:
        """Mask of the samples that were relabelled and not dropped."""
        return (self.label != self.given) & ~self.dropped


def write_sample_weights(folder: Path, weights: FinalWeights) -> None:
    """Write sample_weights.npz into a run folder."""
    columns = {name: getattr(weights, name) for name in ("suspicion", "row", "given", "label", "weight")}
    with atomic_write(folder / SAMPLE_WEIGHTS_FILE) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **columns)


def read_sample_weights(folder: Path, owner: str) -> FinalWeights | None:
    """Return the sample weights in a run folder; None if training had no confidence or has not ended.

    Args:
        owner: the command that errors name.
    """
    file = folder / SAMPLE_WEIGHTS_FILE
    if not file.exists():
        return None
    weights = FinalWeights(**load_arrays(file, owner, RESTART_HINT, ARRAY_KINDS))
    if any(column.shape != (len(weights.row),) for column in weights):
        raise LikewiseError(f"{owner}: {file} is damaged (its columns differ in length); {RESTART_HINT}")
    return weights


def describe_flagged(folder: Path) -> str:
    """Return a sentence with the number of dropped and relabelled samples at the end of training; "" without sample weights."""
    final = read_sample_weights(folder, "train")
    if final is None:
        return ""
    return (
        f"labels: of {len(final.row)} samples, {final.dropped.sum()} were dropped and {final.relabelled.sum()} relabelled "
        f"at the end of training; see `likewise report {folder}`"
    )
