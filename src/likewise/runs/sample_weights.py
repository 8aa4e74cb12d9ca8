"""sample_weights.npz: label, suspicion and sample weight of every training sample when training with a confidence ended."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from likewise.errors import LikewiseError
from likewise.io.files import load_arrays, write_aside

FILE = "sample_weights.npz"
ADVICE = "--restart trains the run anew"


class FinalWeights(NamedTuple):
    """One entry for every training sample. A sample of weight 0 was left out; NaN marks one that was in no batch."""

    row: Int[np.ndarray, "n"]  # of the data
    given: np.ndarray  # name of the class that the data gives
    label: np.ndarray  # name of the class that it trained as
    suspicion: Float[np.ndarray, "n"]
    weight: Float[np.ndarray, "n"]

    @property
    def dropped(self) -> Bool[np.ndarray, "n"]:
        """Samples that were left out of training in the end."""
        return self.weight == 0

    @property
    def relabelled(self) -> Bool[np.ndarray, "n"]:
        """Samples that trained under another label than the given one in the end."""
        return (self.label != self.given) & ~self.dropped


def write_sample_weights(folder: Path, weights: FinalWeights) -> None:
    """Write sample_weights.npz into a run folder."""
    columns = {name: getattr(weights, name) for name in ("suspicion", "row", "given", "label", "weight")}
    with write_aside(folder / FILE) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **columns)


def read_sample_weights(folder: Path, owner: str) -> FinalWeights | None:
    """Return the sample weights in a run folder; None where training had no confidence or has not ended.

    Args:
        owner: the command that the error about a damaged file names.
    """
    file = folder / FILE
    if not file.exists():
        return None
    weights = FinalWeights(**load_arrays(file, owner, ADVICE, FinalWeights._fields))
    if any(column.shape != (len(weights.row),) for column in weights):
        raise LikewiseError(f"{owner}: {file} is damaged (its columns differ in length); {ADVICE}")
    return weights
