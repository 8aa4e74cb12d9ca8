"""losses.npz: the loss of every training sample in every pass, which training with `record_losses` writes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.io.files import load_arrays, write_aside

FILE = "losses.npz"


class Losses(NamedTuple):
    """The loss of every training sample over time: its mean over the times it was in a batch, NaN in a pass without it.

    Unweighted; of the label trained with, where a confidence changed it; of the first network, where there were two.
    """

    row: Int[np.ndarray, "N"]  # of the data
    loss: Float[np.ndarray, "T N"]
    step: Int[np.ndarray, "T"]  # at which each pass ended; the last may have been cut short


def write_losses(folder: Path, losses: Losses) -> None:
    """Write losses.npz into a run folder."""
    with write_aside(folder / FILE) as aside, aside.open("wb") as file:
        np.savez(file, **losses._asdict())


def read_losses(folder: Path) -> Losses | None:
    """Return the losses in a run folder; None where training kept none."""
    if not (folder / FILE).exists():
        return None
    return Losses(**load_arrays(folder / FILE, "run", "--restart trains the run anew", Losses._fields))
