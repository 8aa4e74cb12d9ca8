"""Arrays that training writes into the run folder: trained.npz, losses.npz and sample_weights.npz."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays
from likewise.core.types import Items
from likewise.data.copies import KEY_BYTES, content_keys, is_known

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


SAMPLE_WEIGHTS_FILE = "sample_weights.npz"
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
