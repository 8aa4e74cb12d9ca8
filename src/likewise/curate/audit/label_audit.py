"""Audit of labels in memory: embeddings and labels, or label sets, in; a score for every label out, as by `likewise audit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from likewise.curate.audit.label_probability import class_label_quality, state_blocks
from likewise.data.features import as_array, check_x, from_arrays
from likewise.labels.candidate_classes import MAX_DENSE_CLASSES
from likewise.labels.given_sets import GivenSets

MAX_SHOWN_ROWS = 10
"""Maximum number of flagged labels in the notebook view."""

MAX_TABLE_STATES = 2**29
"""Maximum number of states (samples x labels) in a `LabelSetAudit`: five bytes each, 2.7 GB."""


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


@dataclass(frozen=True, eq=False)
class LabelSetAudit:
    """Result of an audit of label sets: for every sample and label the probability that the given state is wrong.

    A given label may be superfluous, an absent one missing. `wrong` is NaN for labels that cannot be scored. The tables take five
    bytes per sample and label; `audit_labels` refuses to make one of more than `MAX_TABLE_STATES`.
    """

    label: tuple[str, ...]  # names of the columns
    has: Bool[np.ndarray, "N L"]  # whether the sample was given the label
    wrong: Float[np.ndarray, "N L"]  # P(superfluous) of a given label, P(missing) of an absent one; NaN: unknown
    missing_rate: Float[np.ndarray, "L"]  # estimated share of missing labels among the samples that have the label
    superfluous_rate: Float[np.ndarray, "L"]  # estimated share of superfluous labels among the samples that have it not
    reason: tuple[str, ...]  # why a label is unknown; empty: it is known

    @property
    def missing(self) -> Float[np.ndarray, "N L"]:
        """P(the sample lacks the label wrongly); 0 where it was given."""
        return np.where(self.has, 0.0, self.wrong)

    @property
    def superfluous(self) -> Float[np.ndarray, "N L"]:
        """P(the sample was given the label wrongly); 0 where it was not given."""
        return np.where(self.has, self.wrong, 0.0)

    @property
    def is_flagged(self) -> Bool[np.ndarray, "N L"]:
        """Where the given state is more likely wrong than right."""
        return self.wrong > 0.5

    @property
    def issues(self) -> Int[np.ndarray, "M 2"]:
        """Sample and label number of every flagged state, the most suspect first."""
        place = np.argwhere(self.is_flagged)
        return place[np.argsort(-self.wrong[tuple(place.T)], kind="stable")]

    @property
    def suggested(self) -> list[tuple[str, ...]]:
        """The label set of every sample after all flagged states are changed; it may be empty."""
        return [tuple(self.label[n] for n in np.flatnonzero(row)) for row in self.has ^ self.is_flagged]

    def __len__(self) -> int:
        return len(self.has)

    def summary(self) -> str:
        """Return the number of samples and labels, and of flagged and unknown ones."""
        flagged, unknown = self.is_flagged, sum(map(bool, self.reason))
        return (
            f"{len(self)} samples with {int(self.has.sum())} labels of {len(self.label)}, "
            f"{int((flagged & ~self.has).sum())} missing, {int((flagged & self.has).sum())} superfluous"
            + (f", {unknown} labels unknown" if unknown else "")
        )

    def __repr__(self) -> str:
        return f"LabelSetAudit({self.summary()})"

    @view
    def _repr_html_(self) -> str:
        issues = self.issues
        lines = [
            (row, self.label[n], "superfluous" if self.has[row, n] else "missing", f"{self.wrong[row, n]:.3f}")
            for row, n in issues[:MAX_SHOWN_ROWS].tolist()
        ]
        more = [f"and {len(issues) - MAX_SHOWN_ROWS} more"] if len(issues) > MAX_SHOWN_ROWS else []
        return table(self.summary(), ("index", "label", "kind", "probability"), lines, more)


def audit_labels(
    z: Any, y: Any = None, features: Any = None, *, group: Any = None, seed: int = 0, device: str | None = None,
    label_sets: Sequence[Iterable[str | int] | str] | None = None,
) -> LabelAudit | LabelSetAudit:  # fmt: skip
    """Return for every label the probability that it is right, and the label that is suggested if it is wrong.

    Args:
        z: embeddings (N, D), as a numpy or torch array of any float type. They are scaled to unit length.
        y: N labels, integers or strings.
        features: features (N, F), if available, which are then used in place of the embeddings: those of a network that was
            not trained with these labels, or those before the head, have learned less of the wrong labels.
        group: N integers or strings; samples of one group (a burst, a listing) do not count as evidence for each other.
        seed: seed of the folds.
        device: cpu, cuda or mps; None: a GPU if there is one.
        label_sets: in place of y, the labels of every sample: a list of names, or a text such as "dress|red". The result is then
            a `LabelSetAudit`, with the superfluous and the missing labels.
    """
    if (y is None) == (label_sets is None):
        got = "both" if y is not None else "neither"
        raise LikewiseError(f"audit_labels: labels must be given as y or as label_sets, got {got}; pass one of them")
    return (
        audit_classes(z, y, features, group, seed, device)
        if label_sets is None
        else audit_sets(z, label_sets, features, group, seed, device)
    )


def audit_classes(z: Any, y: Any, features: Any, group: Any, seed: int, device: str | None) -> LabelAudit:
    """Return the audit of samples with one label each."""
    items = from_arrays(z, y, "z")
    given, label = as_array(y), torch.as_tensor(items.y)
    check_classes(label)
    assert isinstance(items.x, np.ndarray)  # arrays in memory
    x, number = prepare(items.x, features, group, device)
    found = class_label_quality(x, label.to(x.device), seed, number)
    score = found.score.cpu()
    known = score[~score.isnan()]
    _, first = np.unique(items.y, return_index=True)  # one row of every class: maps class numbers to given labels
    assert found.off_topic is not None
    return LabelAudit(
        given, score.numpy(), given[first][found.suggested.cpu().numpy()], found.confidence.cpu().numpy(),
        found.off_topic.double().cpu().numpy(), float((1 - known).mean()), found.unknown_reason,
    )  # fmt: skip


def audit_sets(
    z: Any, label_sets: Sequence[Iterable[str | int] | str], features: Any, group: Any, seed: int, device: str | None
) -> LabelSetAudit:
    """Return the audit of samples with several labels each."""
    values = check_x(as_array(z), "z")
    names, given = listed_labels(label_sets)
    if len(values) != len(given):
        raise LikewiseError(
            f"audit_labels: label_sets must have one entry per embedding, got {len(given)} for {len(values)}; "
            "pass the labels of every sample"
        )
    if len(given) * len(names) > MAX_TABLE_STATES:
        raise LikewiseError(
            f"audit_labels: the result is a table of at most {MAX_TABLE_STATES:,} states (samples x labels), got "
            f"{len(given):,} x {len(names):,}; save embeddings and labels in a file for `likewise audit`, which lists the states"
        )
    x, number = prepare(values, features, group, device)
    every = torch.arange(len(given))
    has = given if len(names) > MAX_DENSE_CLASSES else given[every] > 0
    found = state_blocks(x, has.to(x.device), seed, number)
    _, stated, wrong = (torch.cat(part).numpy() for part in zip(*found.blocks, strict=True))
    return LabelSetAudit(names, stated, wrong, found.missing.numpy(), found.superfluous.numpy(), found.reason)


def prepare(
    z: np.ndarray, features: Any, group: Any, device: str | None
) -> tuple[Float[Tensor, "N F"], Int[Tensor, "N"] | None]:
    """Return the features, or the unit embeddings without features, and the numbers of the groups, on the device.

    Raises if an embedding is zero, or if features or groups do not match the embeddings.
    """
    zero = np.flatnonzero((z == 0).all(1))
    if len(zero):
        raise LikewiseError(
            f"audit_labels: embeddings must not be all zeros, but {len(zero)} of {len(z)} are (first: row {zero[0]}); "
            "leave out these rows"
        )
    if features is None:
        x = F.normalize(torch.as_tensor(np.array(z, dtype=np.float32)), dim=1)
    else:
        x = torch.as_tensor(check_x(as_array(features), "features").copy())
        if len(x) != len(z):
            raise LikewiseError(
                f"audit_labels: features must have one row per embedding, got {len(x)} rows for {len(z)}; "
                "pass one feature vector per embedding"
            )
    chosen = choose_device(device)
    chosen = torch.device("cpu") if chosen.type == "mps" else chosen  # MPS has no float64
    return x.to(chosen), None if group is None else group_numbers(group, len(z)).to(chosen)


def group_numbers(group: Any, count: int) -> Int[Tensor, "N"]:
    """Return a number for the group of every sample."""
    names = np.asarray(as_array(group))
    if names.shape != (count,):
        raise LikewiseError(
            f"audit_labels: group must have one entry for each of {count} samples, got the shape {names.shape}; "
            "pass one group per sample"
        )
    return torch.as_tensor(np.unique(names, return_inverse=True)[1])


def check_classes(y: Int[Tensor, "N"]) -> None:
    """Raise unless there are two classes, and one of them has two samples."""
    classes = len(y.unique())
    if classes < 2 or classes == len(y):
        what = "one class" if classes < 2 else f"{classes} classes of one sample each"
        raise LikewiseError(
            f"audit_labels: labels must have two classes or more, one of them with two samples, got {what}; add data"
        )


def listed_labels(label_sets: Sequence[Iterable[str | int] | str]) -> tuple[tuple[str, ...], GivenSets]:
    """Return the names of all labels in sorted order, and the numbers of the labels of every sample."""
    words = [one.split("|") if isinstance(one, str) else [str(label) for label in one] for one in label_sets]
    sets = [{label.strip() for label in one if label.strip()} for one in words]
    empty = next((row for row, one in enumerate(sets) if not any(one)), None)
    if not sets or empty is not None:
        raise LikewiseError(
            f"audit_labels: every sample must have a label or more, but row {empty or 0} has none; leave out these rows"
        )
    names = sorted({label for one in sets for label in one})
    number = {name: place for place, name in enumerate(names)}
    label = torch.tensor([place for one in sets for place in sorted(number[label] for label in one)])
    return tuple(names), GivenSets(label, torch.tensor([len(one) for one in sets]), len(names))
