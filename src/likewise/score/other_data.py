"""Data other than that of a run, to score the run on: its test rows without the samples that the run trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from likewise.core.contracts import Split
from likewise.core.types import Items, LikewiseError
from likewise.data.protocols.splits import in_splits
from likewise.runs.open import OpenRun, has_fingerprint
from likewise.runs.training_files import Trained, find_trained, read_trained

MAX_NAMED_CLASSES = 3
"""Number of classes that a sentence names."""
MAX_REMAINDER_SHARE = 0.1
"""If classes that trained have at most this share of the samples that are left, these samples are left out, too. After a
correction they are the few that a relabelling moved; a class of two such samples would weigh as much as any other."""


@dataclass(frozen=True, eq=False)
class OtherData:
    """Data of which no scored sample trained: `items.split` is "test" for the samples to score, "" for all others."""

    items: Items
    name: str  # as the user gave it
    rows: int  # samples of the split, before those that trained are left out
    trained: tuple[int, ...]  # of these, the samples that each run trained on
    left_out: int  # of these, the samples that a run trained on
    classes: tuple[str, ...] = ()  # classes of the samples that are left, which a run trained on, too
    remainder: int = 0  # samples of these classes that are left out, too, because they are few; 0: they are scored

    @property
    def noun(self) -> str:
        return "images" if self.items.x is None else "feature vectors"


def load_other(opened: OpenRun, root: str | None) -> Items | None:
    """Return the data at `--data`, unless it is the data of the run at a new place.

    Args:
        opened: the run, opened with `data`.
        root: value of `--root`. Without it, the paths of other data do not start at the root of the run's own data.
    """
    own_root = opened.settings.root
    try:
        items = opened.load()
        if has_fingerprint(opened.run, items):
            opened.take(items)
            return None
    except LikewiseError:
        pass  # raised again below, unless other data can be read without the root of the run's own data
    if root is None and own_root is not None:
        opened.settings = dataclasses.replace(opened.settings, root=None)
    return opened.load(own=False)


def trained_samples(opened: OpenRun) -> Trained:
    """Return the samples that a run trained on: from its folder, or from its data if an older version trained it."""
    if (found := read_trained(opened.run.path)) is not None:
        return found
    try:
        items, protocol = opened.noisy_items, opened.protocol
        rows = [protocol.rows(items, part) for part in ("train", "val")]
    except LikewiseError as error:
        raise LikewiseError(
            f"evaluate: the samples that '{opened.run.path}' trained on must be known, to leave them out of other data, but this "
            f"run has no trained.npz, and its own data cannot be read ({error}); restore its data, or train it again"
        ) from None
    return find_trained(opened.items, np.union1d(*rows))


def without_trained(items: Items, name: str, runs: Sequence[OpenRun], split: Split = "test") -> OtherData:
    """Return the data with the samples to score: its own split, or all of it, without samples that one of the runs trained on.

    Args:
        name: the data as the user gave it.
        split: split to score, if the data has splits.
    """
    rows = np.flatnonzero(chosen_rows(items, split))
    trained = [trained_samples(opened) for opened in runs]
    found = np.stack([one.has(items, rows) for one in trained])
    scored = rows[~found.any(0)]
    left_out = len(rows) - len(scored)
    seen = {word for one, opened in zip(trained, runs) if not opened.protocol.shares_classes for word in one.class_name}
    remains = np.isin(items.y[scored], [c for c, word in enumerate(items.class_name) if word in seen])
    is_remainder = bool(remains.any()) and remains.mean() <= MAX_REMAINDER_SHARE
    classes = tuple(items.class_name[c] for c in np.unique(items.y[scored][remains]).tolist())
    scored = scored[~remains] if is_remainder else scored
    parts = np.full(len(items), "", "<U5")
    parts[scored] = "test"
    return OtherData(
        dataclasses.replace(items, split=parts), name, len(rows), tuple(found.sum(1).tolist()), left_out, classes,
        int(remains.sum()) if is_remainder else 0,
    )  # fmt: skip


def chosen_rows(items: Items, split: Split) -> Bool[np.ndarray, "N"]:
    """Return a mask of the rows of a split of the data; all rows, without junk, for the test split of data without splits."""
    if items.split is not None and (items.split != "").any():
        chosen = in_splits(items) & (items.split == split)
    elif split == "test":
        chosen = in_splits(dataclasses.replace(items, split=None))
    else:
        raise LikewiseError(
            f"evaluate: '{items.name}' has no `split` column, so no {split} split; add the column, or drop --split"
        )
    if not chosen.any():
        raise LikewiseError(f"evaluate: the {split} split of '{items.name}' is empty; check its `split` column")
    return chosen


def describe_left_out(data: OtherData) -> str:
    """Return a sentence about the samples that are left out, and the classes that trained, for the scores of one run."""
    noun = data.noun
    if data.left_out:
        text = f"{data.left_out:,} of {data.rows:,} {noun} are left out, because the run trained on them (train or val)"
    else:
        text = f"the run trained on none of these {data.rows:,} {noun}"
    return text + describe_classes(data)


def describe_classes(data: OtherData) -> str:
    """Return the end of a sentence about classes of the samples that are left and that were trained on; "" without such."""
    classes = data.classes
    if not classes:
        return ""
    shown = ", ".join(classes[:MAX_NAMED_CLASSES]) + (", ..." if len(classes) > MAX_NAMED_CLASSES else "")
    if data.remainder:
        of = "a class" if len(classes) == 1 else f"{len(classes):,} classes"
        are = "is" if data.remainder == 1 else "are"
        return f"; {data.remainder:,} more of {of} that trained {are} left out, too ({shown})"
    are = "class of the others was" if len(classes) == 1 else "classes of the others were"
    return f"; {len(classes):,} {are} in training too ({shown})"


def check_any_left(data: OtherData) -> None:
    """Raise if the run trained on all samples."""
    if data.left_out == data.rows:
        raise LikewiseError(
            f"evaluate: the run trained on all {data.rows:,} {data.noun} of '{Path(data.name).name}' that could be scored, so "
            "nothing is left; give samples that it did not train on"
        )
