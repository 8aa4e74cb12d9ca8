"""audit: find wrong labels, classes to merge, retrieval errors with their causes, and near duplicates; write a folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from likewise._notebook import view
from likewise.audit.attribution import INFLUENCE_METHODS, explain
from likewise.audit.conflicts import add_copies, note_conflicts
from likewise.audit.find_copies import Copies, find_copies, load_image
from likewise.audit.forecast import forecast_audit, prove_forecast
from likewise.audit.label_quality import SCORE_DESCRIPTIONS, has_own_split, measure, score_splits
from likewise.audit.page import write_page
from likewise.audit.records import AuditSplit, ExplainedErrors, SplitQuality, Subject
from likewise.audit.retrain import retrain
from likewise.audit.source import folder_of, kind_of, open_subject
from likewise.audit.states import REVIEWED_STATES, STATE_DESCRIPTIONS, suggested_decision
from likewise.audit.write import write_tables
from likewise.config import Audit, check
from likewise.io.files import write_json


@dataclass(frozen=True, eq=False)
class Audited:
    """The folder of an audit, and the content of its audit.json."""

    folder: Path
    about: dict

    def __fspath__(self) -> str:
        """Return the folder, so that an audit can be used as a path."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        from likewise.audit.summary import findings_html

        return findings_html(self)


def audit(config: Audit, say: Callable[[str], None] = print) -> Audited:
    """Audit a run, a file of embeddings or data, write the audit folder, and retrain with the suggested labels if configured."""
    check(config)
    subject = open_subject(config, say)
    folder = folder_of(config)
    explained = explain(subject, config)
    quality = score_splits(subject, explained, config)
    copies = find_copies(subject, config.quiet)
    conflicts = note_conflicts(subject, copies)
    trainable = add_copies(subject, quality, copies, across=False)
    quality = add_copies(subject, quality, copies)
    about = build_summary(subject, quality, explained, copies, config) | {"conflicts": conflicts}
    (folder / "audit.json").unlink(missing_ok=True)  # a folder with files of two audits must not look complete
    write_tables(folder, subject, quality, explained, copies, about)
    if config.forecast:
        forecast_audit(subject, quality, config, folder)
    finish(folder, subject, about, config)
    if config.retrain:
        about["retrain"] = retrain_with_suggestions(subject, trainable, config, folder, say)
        if config.forecast:
            suspects = int(sum(found.flagged.sum() for found in quality.values()))
            prove_forecast(folder, about["retrain"]["rows"], suspects, "the labels are suggestions without a review")
        finish(folder, subject, about, config)
    return Audited(folder, about)


def finish(folder: Path, subject: Subject, about: dict, config: Audit) -> None:
    """Write audit.json, which marks the folder as a complete audit, and the page."""
    write_json(folder / "audit.json", without_nan(about))
    write_page(folder, lambda row: load_image(subject.items, row), config.quiet)


def build_summary(
    subject: Subject, quality: dict[str, SplitQuality], explained: ExplainedErrors, copies: Copies, config: Audit
) -> dict:
    """Return the content of audit.json."""
    splits = {}
    for name, found in quality.items():
        e, scored = subject.splits[name].e, found.quality
        splits[name] = {
            "samples": len(e.y), "classes": len(subject.splits[name].names), "wrong": found.wrong,
            "flagged": int(np.isin(found.state, ["flagged", "conflict"]).sum()),
            "states": {state: int((found.state == state).sum()) for state in STATE_DESCRIPTIONS},
            "unknown_reason": unknown_reason(found), "of_all": found.classes.of_all, "of_touched": found.classes.of_touched,
            "any": scored.any, "similar": scored.similar,
        }  # fmt: skip
    used = [name for name in SCORE_DESCRIPTIONS if any(name in found.single for found in quality.values())]
    names, split_of, pairs = list(subject.splits), copies.split_of, copies.found
    between = [f"{names[split_of[a]]}-{names[split_of[b]]}" for a, b in zip(pairs.row, pairs.other)]
    items, first = subject.items, next(iter(subject.splits))
    return {
        "target": str(config.targets[0]),
        "kind": {"run": "run", "data": "data"}.get(kind_of(config.targets[0]), "embeddings"),
        "own_split": has_own_split(items),
        "title": subject.title,
        "root": str(Path(items.root).absolute()) if items.path is not None else "",
        "rows": len(items),
        "pictures": items.path is not None,
        "parts": splits,
        "scores": {
            "score": "probability that the label is right, by class densities and votes of neighbours",
            **{name: SCORE_DESCRIPTIONS[name] for name in used},
        },
        "influence": INFLUENCE_METHODS[config.influence] if explained.causes is not None else "",
        "errors": {
            "queries": len(subject.test.e.y), "confusion": len(explained.pairs.confusion.query),
            "mis_similar": len(explained.pairs.mis_similar.query),
        },
        "duplicates": {names: between.count(names) for names in dict.fromkeys(between)},
        **measure(subject.splits[first], quality[first], items),
        "notes": subject.notes,
        "verify": explained.verified,
        "retrain": None,
    }  # fmt: skip


def unknown_reason(found: SplitQuality) -> str:
    """Return why labels of a split cannot be scored, in one sentence; empty if all can."""
    unknown = found.state == "unknown"
    if not unknown.any():
        return ""
    return found.quality.unknown_reason or "the evidence does not suffice"


def retrain_with_suggestions(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, say: Callable
) -> dict:
    """Train again with the labels that the audit suggests.

    Args:
        quality: label scores without the evidence of copies in other splits.
    """
    assert subject.run is not None and subject.settings is not None
    labels = suggested_labels(subject.splits["train"], quality["train"], subject.items.class_name)
    return retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)


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


def without_nan(value):
    """Return a value with NaN and infinity replaced by None, because JSON has neither."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
