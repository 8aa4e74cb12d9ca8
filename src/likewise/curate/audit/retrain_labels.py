"""Labels to train a run with again: those that an audit suggests, or those of a review."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from likewise.core.files import make_folder
from likewise.core.settings import Audit
from likewise.core.types import LikewiseError
from likewise.curate.audit.proof import prove_suggestions
from likewise.curate.audit.records import AuditSplit, SplitQuality, Subject
from likewise.curate.audit.states import REVIEWED_STATES, suggested_decision
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun


def retrain_with_suggestions(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, say: Callable
) -> dict:
    """Train again with the labels that the audit suggests, and write proof.json if there is a forecast.

    Args:
        quality: label scores without the evidence of copies in other splits.
    """
    from likewise.curate.audit.retrain import retrain

    assert subject.run is not None and subject.settings is not None
    labels = suggested_labels(subject.splits["train"], quality["train"], subject.items.class_name)
    found = retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)
    prove_suggestions(folder, found)
    return found


def suggested_labels(split: AuditSplit, found: SplitQuality, names: tuple[str, ...]) -> dict[int, int | None]:
    """Return row -> new class number, or None to drop the row, for every row that `suggested_decision` changes.

    A sample whose suggested label is not a class of the split is dropped.
    """
    number, state, labels = {name: c for c, name in enumerate(names)}, found.state, {}
    trained = set(split.names)
    for place in np.flatnonzero(np.isin(state, REVIEWED_STATES)).tolist():
        suggested, confidence, _ = found.suggestion(place, names)
        score = float(found.quality.score[place])
        decision = suggested_decision(str(state[place]), None if math.isnan(score) else score, confidence)
        if decision != "keep":
            labels[int(split.e.row[place])] = (
                number[suggested] if decision == "relabel" and suggested in trained else None
            )
    return labels


def retrain_with_decisions(
    about: dict, labels: Mapping[int, str | None], config: Audit, folder: Path, say: Callable[[str], None]
) -> dict:
    """Train the network of an audited run again with the labels of a review; see `retrain`.

    A training sample with a class that no training sample was given is dropped. Every set of labels has its own folder, so that
    another review is another training.

    Args:
        about: content of audit.json.
        labels: row of the data -> its class after the review, or None: it was removed.
    """
    from likewise.curate.audit.retrain import retrain

    run = Run(find_run(about["target"], folder))
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = opened.noisy_items
    trained = {items.class_name[c]: c for c in np.unique(items.y[opened.protocol.rows(items, "train")]).tolist()}
    new = {row: None if name is None else trained.get(name) for row, name in labels.items()}
    key = hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:8]
    out = make_folder(folder / f"reviewed-{key}", "review")
    return retrain(run, opened.settings, items, new, config, out, say)


def find_run(target: str, folder: Path) -> Path:
    """Return the folder of an audited run: the one of the audit, or, if it was moved, the one that contains the audit."""
    for place in (Path(target).expanduser(), folder.absolute().parent):
        if (place / "config.json").is_file():
            return place
    raise LikewiseError(
        f"review: the audited run must be at '{target}' to be trained again, but is not; restore it there"
    )
