"""The samples of a training: rows, labels and weights, numbered from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.contracts import Protocol
from likewise.core.errors import shown_names
from likewise.core.types import Items, LikewiseError
from likewise.data.copies import exact_copies
from likewise.data.votes import votes_of


@dataclass(frozen=True, eq=False)
class Samples:
    """Training and validation samples of a data set with N rows: n training rows of C classes, m validation rows.

    Attributes:
        loaded: the data as it was loaded. Evaluation uses its labels.
        items: the data with the labels of training; differs from `loaded` if `--noise` injected wrong labels.
        rows: the training rows, in order; val_rows: the validation rows.
        class_names: names of the classes 0..C-1 that the training labels use.
        labels: class number of the given label of every training sample.
        clean: class number of its true label; -1 if no training label has that class; None if true labels are not known.
        weight: sample weight of every row of the data.
        position: index of every row of the data among the training samples; -1 for other rows.
    """

    loaded: Items
    items: Items
    protocol: Protocol
    rows: Int[np.ndarray, "n"]
    val_rows: Int[np.ndarray, "m"]
    class_names: tuple[str, ...]
    labels: Int[np.ndarray, "n"]
    clean: Int[Tensor, "n"] | None
    weight: Float[Tensor, "N"]
    position: Int[Tensor, "N"]

    @property
    def noisy(self) -> Bool[np.ndarray, "n"] | None:
        """Mask of the wrong labels; None if the true labels are not known."""
        return None if self.clean is None else self.clean.cpu().numpy() != self.labels

    @property
    def features(self) -> int | None:
        """Length of the feature vectors; None for images."""
        return None if self.items.x is None else self.items.x.shape[1]

    def describe_single_classes(self) -> str:
        """Return a sentence that names the training classes with one sample; "" without such classes."""
        single = np.flatnonzero(np.bincount(self.labels) == 1).tolist()
        if not single:
            return ""
        names = shown_names([self.class_names[label] for label in single])
        return f"training skips {len(single)} of {len(self.class_names)} classes, because they have one sample only: {names}"

    def facts(self, votes: str | None = None) -> dict[str, Any]:
        """Return values for the arguments of a confidence that specs may omit, from the rows of the samples.

        Args:
            votes: long table of votes; None: the column `votes` of the data.
        """
        group = None if self.items.group is None else self.items.group[self.rows]
        facts: dict[str, Any] = {"group": group, "copies": lambda: exact_copies(self.items, self.rows)}
        found = votes_of(self.items, votes)
        if found is None:
            return facts
        found, number = found.among(self.rows), np.full(self.items.classes, -1)
        number[np.unique(self.items.y[self.rows])] = np.arange(len(self.class_names))
        kept = number[found.label] >= 0  # a vote for a class that is not trained
        label = number[found.label[kept]]
        if not len(label):
            raise LikewiseError(
                f"votes: there must be votes about the {len(self.rows):,} training samples, got none for one of their "
                f"{len(self.class_names):,} classes; add votes about training samples, or leave out the votes"
            )
        return facts | {"votes": found._replace(row=found.row[kept], worker=found.worker[kept], label=label)}


def number_samples(loaded: Items, items: Items, protocol: Protocol, device: torch.device) -> Samples:
    """Select the samples of a training by the protocol, and number them and their classes from 0.

    Args:
        loaded: the data as it was loaded.
        items: the data with the labels of training, in which wrong labels may have been injected.
    """
    rows, val_rows = (protocol.rows(items, split) for split in ("train", "val"))
    used = np.unique(items.y[rows])
    number = np.full(items.classes, -1)
    number[used] = np.arange(len(used))
    clean = None if items.y_clean is None else torch.as_tensor(number[items.y_clean[rows]], device=device)
    weight = np.ones(len(items)) if items.weight is None else items.weight
    position = torch.full((len(items),), -1, dtype=torch.int64)
    position[torch.as_tensor(rows)] = torch.arange(len(rows))
    return Samples(
        loaded=loaded,
        items=items,
        protocol=protocol,
        rows=rows,
        val_rows=val_rows,
        class_names=tuple(items.class_name[c] for c in used),
        labels=number[items.y[rows]],
        clean=clean,
        weight=torch.as_tensor(weight, dtype=torch.float32, device=device),
        position=position.to(device),
    )
