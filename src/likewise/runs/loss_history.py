"""losses.npz: the loss of every training sample in every epoch, which training with `record_losses` writes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays

LOSSES_FILE = "losses.npz"
RESTART_HINT = "use --restart to train the run again"


class Losses(NamedTuple):
    """The unweighted loss of every training sample in every epoch: its mean over the batches of the epoch, NaN without any.

    If a confidence relabelled the sample, the loss is that of the new label. If there are two networks, it is that of the first.
    """

    row: Int[np.ndarray, "N"]  # of the data
    loss: Float[np.ndarray, "T N"]
    step: Int[np.ndarray, "T"]  # at which each epoch ended; the last epoch may be incomplete


def write_losses(folder: Path, losses: Losses) -> None:
    """Write losses.npz into a run folder."""
    with atomic_write(folder / LOSSES_FILE) as aside, aside.open("wb") as file:
        np.savez(file, **losses._asdict())


def read_losses(folder: Path) -> Losses | None:
    """Return the losses in a run folder; None if training did not record them."""
    if not (folder / LOSSES_FILE).exists():
        return None
    file, kinds = folder / LOSSES_FILE, {"row": ("iu", 1), "loss": ("f", 2), "step": ("iu", 1)}
    losses = Losses(**load_arrays(file, "run", RESTART_HINT, kinds))
    if losses.loss.shape != (len(losses.step), len(losses.row)):
        raise LikewiseError(
            f"run: {file} is damaged (loss must have a line per step and a column per row); {RESTART_HINT}"
        )
    return losses
