"""Audit of labels in memory: embeddings and labels in, a score for every label out. The numbers of `likewise audit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from likewise._notebook import table, view
from likewise.audit.label_quality_ensemble import judge
from likewise.audit.label_scores import class_sizes
from likewise.data.features import as_array, check_x, from_arrays
from likewise.errors import LikewiseError
from likewise.runs.devices import choose_device

SHOWN = 10
"""Flagged labels in the notebook view."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """What the embeddings say about every label. All arrays have one entry per sample, in the order of the input."""

    given: Shaped[np.ndarray, "N"]  # the labels, as they were given
    score: Float[np.ndarray, "N"]  # probability that the label is right
    suggested: Shaped[np.ndarray, "N"]  # the most likely other label
    confidence: Float[np.ndarray, "N"]  # probability of the suggested label, if the given one is wrong
    noise_rate: float  # estimated share of wrong labels
    notes: tuple[str, ...] = ()

    @property
    def is_flagged(self) -> Bool[np.ndarray, "N"]:
        """Whether the label is more likely wrong than right."""
        return self.score < 0.5

    @property
    def issues(self) -> Int[np.ndarray, "M"]:
        """Indices of the flagged samples, the most suspect first."""
        order = np.argsort(self.score, kind="stable")
        return order[self.is_flagged[order]]

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return f"LabelAudit({len(self)} labels, {len(self.issues)} flagged, noise rate {self.noise_rate:.1%})"

    @view
    def _repr_html_(self) -> str:
        issues = self.issues
        lines = [(i, self.given[i], self.suggested[i], f"{self.score[i]:.3f}") for i in issues[:SHOWN].tolist()]
        title = f"{len(self)} labels, {len(issues)} flagged; estimated noise rate {self.noise_rate:.1%}"
        more = [f"and {len(issues) - SHOWN} more flagged labels"] if len(issues) > SHOWN else []
        return table(title, ("index", "label", "suggested", "score"), lines, [*more, *self.notes])


def audit_labels(z: Any, y: Any, features: Any = None, *, seed: int = 0, device: str | None = None) -> LabelAudit:
    """Return for every label the probability that it is right, and the label that it should have otherwise.

    Args:
        z: embeddings (N, D), as numpy or torch has them, of any float type. They are scaled to unit length.
        y: N labels, whole numbers or words.
        features: features (N, F) below the embedding, if there are any; they have learned less of the wrong labels.
        seed: seed of the folds.
        device: cpu, cuda, mps. By default the GPU if there is one.
    """
    items = from_arrays(z, y, "z")
    given, label = as_array(y), torch.as_tensor(items.y)
    x = None if features is None else torch.as_tensor(check_x(as_array(features), "features").copy())
    check_arrays(torch.as_tensor(items.x), label, x)
    place = choose_device(device)
    place = torch.device("cpu") if place.type == "mps" else place  # it has no float64
    unit = F.normalize(torch.as_tensor(np.array(items.x, dtype=np.float32)), dim=1)
    found = judge(unit.to(place), label.to(place), None if x is None else x.to(place), seed=seed)
    score = found.score.cpu()
    wrong = float((1 - score)[class_sizes(label) > 1].sum())
    _, first = np.unique(items.y, return_index=True)  # one row of every class, which has its label as it was given
    notes = ("these embeddings do not separate the classes, so hardly any label is flagged",) if found.silent else ()
    return LabelAudit(
        given, score.numpy(), given[first][found.suggested.cpu().numpy()], found.confidence.cpu().numpy(),
        wrong / len(label), notes,
    )  # fmt: skip


def check_arrays(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], x: Tensor | None) -> None:
    """Raise unless every embedding has a direction, labels can be compared, and features match the embeddings."""
    zero = (z == 0).all(1).nonzero()[:, 0]
    if len(zero):
        raise LikewiseError(
            f"audit_labels: an embedding must not be all zeros, but {len(zero)} of {len(z)} are (first: row {int(zero[0])}); "
            "leave them out"
        )
    if x is not None and len(x) != len(z):
        raise LikewiseError(
            f"audit_labels: features must have one row per embedding, got {len(x)} rows for {len(z)}; make them agree"
        )
    classes = len(y.unique())
    if classes < 2 or classes == len(y):
        what = "one class" if classes < 2 else f"{classes} classes of one sample each"
        raise LikewiseError(
            f"audit_labels: labels must hold two classes or more, one of them with two samples, got {what}; bring more data"
        )
