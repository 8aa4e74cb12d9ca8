"""Audit of label sets in memory: embeddings and the labels of every sample in, missing and superfluous labels out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch.nn import functional as F

from likewise.core.devices import choose_device
from likewise.core.errors import LikewiseError
from likewise.core.notebook import table, view
from likewise.curate.audit.label_audit import MAX_SHOWN_ROWS, LabelAudit, audit_labels, group_numbers
from likewise.curate.audit.label_set_probability import score_label_sets
from likewise.data.features import as_array, check_x


@dataclass(frozen=True, eq=False)
class LabelSetAudit:
    """Result of an audit of label sets: for every sample and label the probability that the given state is wrong.

    A given label may be superfluous, an absent one missing. `wrong` is NaN for labels that cannot be scored.
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


def audit_any(
    z: Any,
    y: Any = None,
    features: Any = None,
    *,
    seed: int = 0,
    device: str | None = None,
    label_sets: Sequence | None = None,
) -> LabelAudit | LabelSetAudit:
    """Return the audit of single labels `y`, or of `label_sets`, whichever is given."""
    if (y is None) == (label_sets is None):
        got = "both" if y is not None else "neither"
        raise LikewiseError(f"audit_labels: labels must be given as y or as label_sets, got {got}; pass one of them")
    if label_sets is None:
        return audit_labels(z, y, features, seed=seed, device=device)
    return audit_label_sets(z, label_sets, features, seed=seed, device=device)


def audit_label_sets(
    z: Any, label_sets: Sequence[Iterable[str | int] | str], features: Any = None, *, group: Any = None, seed: int = 0,
    device: str | None = None,
) -> LabelSetAudit:  # fmt: skip
    """Return for every sample and label the probability that a given label is superfluous, and that an absent one is missing.

    Args:
        z: embeddings (N, D), as a numpy or torch array of any float type. They are scaled to unit length.
        label_sets: the labels of every sample: a list of names, or a text such as "dress|red".
        features: features (N, F), if available, which are then used in place of the embeddings.
        group: N integers or strings; samples of one group do not count as evidence for each other.
        seed: seed of the folds.
        device: cpu, cuda or mps; None: a GPU if there is one.
    """
    values = check_x(as_array(z), "z")
    names, has = multi_hot(label_sets)
    if len(values) != len(has):
        raise LikewiseError(
            f"audit_labels: label_sets must have one entry per embedding, got {len(has)} for {len(values)}; "
            "pass the labels of every sample"
        )
    zero = np.flatnonzero((values == 0).all(1))
    if len(zero):
        raise LikewiseError(
            f"audit_labels: embeddings must not be all zeros, but {len(zero)} of {len(values)} are (first: row {zero[0]}); "
            "leave out these rows"
        )
    chosen = choose_device(device)
    chosen = torch.device("cpu") if chosen.type == "mps" else chosen  # MPS has no float64
    if features is None:
        x = F.normalize(torch.as_tensor(np.array(values, dtype=np.float32)), dim=1)
    else:
        x = torch.as_tensor(check_x(as_array(features), "features").copy())
    number = None if group is None else group_numbers(group, len(has)).to(chosen)
    found = score_label_sets(x.to(chosen), torch.as_tensor(has).to(chosen), seed, number)
    return LabelSetAudit(
        names,
        has,
        found.wrong.cpu().numpy(),
        found.missing.cpu().numpy(),
        found.superfluous.cpu().numpy(),
        found.reason,
    )


def multi_hot(label_sets: Sequence[Iterable[str | int] | str]) -> tuple[tuple[str, ...], Bool[np.ndarray, "N L"]]:
    """Return the names of all labels in sorted order, and which sample has which."""
    words = [one.split("|") if isinstance(one, str) else [str(label) for label in one] for one in label_sets]
    sets = [[label.strip() for label in one if label.strip()] for one in words]
    empty = next((row for row, one in enumerate(sets) if not any(one)), None)
    if not sets or empty is not None:
        raise LikewiseError(
            f"audit_labels: every sample must have a label or more, but row {empty or 0} has none; leave out these rows"
        )
    names = sorted({label for one in sets for label in one})
    number = {name: place for place, name in enumerate(names)}
    has = np.zeros((len(sets), len(names)), bool)
    has[[row for row, one in enumerate(sets) for _ in one], [number[label] for one in sets for label in one]] = True
    return tuple(names), has
