"""Audit of labels in memory: embeddings and labels in, a score for every label out; the values of `likewise audit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from likewise._notebook import table, view
from likewise.audit.label_quality_ensemble import score_labels
from likewise.audit.label_scores import class_sizes
from likewise.data.features import as_array, check_x, from_arrays
from likewise.errors import LikewiseError
from likewise.runs.devices import choose_device

MAX_SHOWN_ROWS = 10
"""Maximum number of flagged labels in the notebook view."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """Result of a label audit: the probability that each label is right, and a suggested label. Arrays are in input order."""

    given: Shaped[np.ndarray, "N"]  # the given labels
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
        lines = [
            (i, self.given[i], self.suggested[i], f"{self.score[i]:.3f}") for i in issues[:MAX_SHOWN_ROWS].tolist()
        ]
        title = f"{len(self)} labels, {len(issues)} flagged; estimated noise rate {self.noise_rate:.1%}"
        more = [f"and {len(issues) - MAX_SHOWN_ROWS} more flagged labels"] if len(issues) > MAX_SHOWN_ROWS else []
        return table(title, ("index", "label", "suggested", "score"), lines, [*more, *self.notes])


def audit_labels(z: Any, y: Any, features: Any = None, *, seed: int = 0, device: str | None = None) -> LabelAudit:
    """Return for every label the probability that it is right, and the label that is suggested if it is wrong.

    Args:
        z: embeddings (N, D), as a numpy or torch array of any float type. They are scaled to unit length.
        y: N labels, integers or strings.
        features: features (N, F) before the head, if available; they have learned less of the wrong labels than the
        embeddings.
        seed: seed of the folds.
        device: cpu, cuda or mps; None: a GPU if there is one.
    """
    items = from_arrays(z, y, "z")
    given, label = as_array(y), torch.as_tensor(items.y)
    x = None if features is None else torch.as_tensor(check_x(as_array(features), "features").copy())
    check_arrays(torch.as_tensor(items.x), label, x)
    chosen = choose_device(device)
    chosen = torch.device("cpu") if chosen.type == "mps" else chosen  # MPS has no float64
    unit = F.normalize(torch.as_tensor(np.array(items.x, dtype=np.float32)), dim=1)
    found = score_labels(unit.to(chosen), label.to(chosen), None if x is None else x.to(chosen), seed=seed)
    score = found.score.cpu()
    wrong = float((1 - score)[class_sizes(label) > 1].sum())
    _, first = np.unique(items.y, return_index=True)  # one row of every class: maps class numbers to given labels
    notes = (
        ("these embeddings do not separate the classes, so hardly any label is flagged",) if found.uninformative else ()
    )
    return LabelAudit(
        given, score.numpy(), given[first][found.suggested.cpu().numpy()], found.confidence.cpu().numpy(),
        wrong / len(label), notes,
    )  # fmt: skip


def check_arrays(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], x: Tensor | None) -> None:
    """Raise unless no embedding is zero, some class has two samples, and features match the embeddings."""
    zero = (z == 0).all(1).nonzero()[:, 0]
    if len(zero):
        raise LikewiseError(
            f"audit_labels: embeddings must not be all zeros, but {len(zero)} of {len(z)} are (first: row {int(zero[0])}); "
            "leave out these rows"
        )
    if x is not None and len(x) != len(z):
        raise LikewiseError(
            f"audit_labels: features must have one row per embedding, got {len(x)} rows for {len(z)}; "
            "pass one feature vector per embedding"
        )
    classes = len(y.unique())
    if classes < 2 or classes == len(y):
        what = "one class" if classes < 2 else f"{classes} classes of one sample each"
        raise LikewiseError(
            f"audit_labels: labels must have two classes or more, one of them with two samples, got {what}; add data"
        )
