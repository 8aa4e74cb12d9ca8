"""Audit of labels in memory: embeddings and labels in, a score for every label out; the values of `likewise audit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from likewise.core.devices import choose_device
from likewise.core.errors import LikewiseError
from likewise.core.notebook import table, view
from likewise.curate.audit.label_probability import score_labels
from likewise.data.features import as_array, check_x, from_arrays

MAX_SHOWN_ROWS = 10
"""Maximum number of flagged labels in the notebook view."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """Result of a label audit: the probability that each label is right, and a suggested label. Arrays are in input order.

    A label that cannot be scored has the score NaN; `reason` is the reason.
    """

    given: Shaped[np.ndarray, "N"]  # the given labels
    score: Float[np.ndarray, "N"]  # probability that the label is right; NaN: unknown
    suggested: Shaped[np.ndarray, "N"]  # the most likely other label
    confidence: Float[np.ndarray, "N"]  # probability of the suggested label, if the given one is wrong
    off_topic: Float[np.ndarray, "N"]  # probability that the sample fits no class
    noise_rate: float  # estimated share of wrong labels among those with a score; NaN: unknown
    reason: str = ""  # why some labels are unknown; empty: all have a score

    @property
    def is_flagged(self) -> Bool[np.ndarray, "N"]:
        """Whether the label is more likely wrong than right."""
        return self.score < 0.5

    @property
    def is_unknown(self) -> Bool[np.ndarray, "N"]:
        """Whether the label cannot be scored."""
        return np.isnan(self.score)

    @property
    def issues(self) -> Int[np.ndarray, "M"]:
        """Indices of the flagged samples, the most suspect first."""
        order = np.argsort(self.score, kind="stable")
        return order[self.is_flagged[order]]

    def __len__(self) -> int:
        return len(self.score)

    def summary(self) -> str:
        """Return the number of labels, of flagged and of unknown ones, and the noise rate."""
        unknown = int(self.is_unknown.sum())
        rate = "unknown" if np.isnan(self.noise_rate) else f"{self.noise_rate:.1%}"
        return (
            f"{len(self)} labels, {len(self.issues)} flagged, "
            + (f"{unknown} unknown ({self.reason}), " if unknown else "")
            + f"noise rate {rate}"
        )

    def __repr__(self) -> str:
        return f"LabelAudit({self.summary()})"

    @view
    def _repr_html_(self) -> str:
        issues = self.issues
        lines = [
            (i, self.given[i], self.suggested[i], f"{self.score[i]:.3f}") for i in issues[:MAX_SHOWN_ROWS].tolist()
        ]
        more = [f"and {len(issues) - MAX_SHOWN_ROWS} more flagged labels"] if len(issues) > MAX_SHOWN_ROWS else []
        return table(self.summary(), ("index", "label", "suggested", "score"), lines, more)


def audit_labels(
    z: Any, y: Any, features: Any = None, *, group: Any = None, seed: int = 0, device: str | None = None
) -> LabelAudit:
    """Return for every label the probability that it is right, and the label that is suggested if it is wrong.

    Args:
        z: embeddings (N, D), as a numpy or torch array of any float type. They are scaled to unit length.
        y: N labels, integers or strings.
        features: features (N, F), if available, which are then used in place of the embeddings: those of a network that was
            not trained with these labels, or those before the head, have learned less of the wrong labels.
        group: N integers or strings; samples of one group (a burst, a listing) do not count as evidence for each other.
        seed: seed of the folds.
        device: cpu, cuda or mps; None: a GPU if there is one.
    """
    items = from_arrays(z, y, "z")
    given, label = as_array(y), torch.as_tensor(items.y)
    x = None if features is None else torch.as_tensor(check_x(as_array(features), "features").copy())
    check_arrays(torch.as_tensor(items.x), label, x)
    chosen = choose_device(device)
    chosen = torch.device("cpu") if chosen.type == "mps" else chosen  # MPS has no float64
    if x is None:
        x = F.normalize(torch.as_tensor(np.array(items.x, dtype=np.float32)), dim=1)
    found = score_labels(
        x.to(chosen), label.to(chosen), seed, None if group is None else group_numbers(group, len(label)).to(chosen)
    )
    score = found.score.cpu()
    known = score[~score.isnan()]
    _, first = np.unique(items.y, return_index=True)  # one row of every class: maps class numbers to given labels
    assert found.off_topic is not None
    return LabelAudit(
        given, score.numpy(), given[first][found.suggested.cpu().numpy()], found.confidence.cpu().numpy(),
        found.off_topic.double().cpu().numpy(), float((1 - known).mean()), found.unknown_reason,
    )  # fmt: skip


def group_numbers(group: Any, count: int) -> Int[Tensor, "N"]:
    """Return a number for the group of every sample."""
    names = np.asarray(as_array(group))
    if names.shape != (count,):
        raise LikewiseError(
            f"audit_labels: group must have one entry for each of {count} samples, got the shape {names.shape}; "
            "pass one group per sample"
        )
    return torch.as_tensor(np.unique(names, return_inverse=True)[1])


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
