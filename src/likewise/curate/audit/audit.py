"""audit: find wrong labels, classes to merge, retrieval errors with their causes, and near duplicates; write a folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from likewise.core.block_executors import executing
from likewise.core.errors import LikewiseError
from likewise.core.files import write_json
from likewise.core.notebook import view
from likewise.core.settings import Audit, check
from likewise.curate.audit.copy_evidence import Copies, add_copies, find_copies, load_image, note_conflicts
from likewise.curate.audit.error_causes import INFLUENCE_METHODS, explain
from likewise.curate.audit.forecast import HEADS_FILE, forecast_audit
from likewise.curate.audit.label_quality import (
    SCORE_DESCRIPTIONS,
    label_facts,
    measure,
    score_splits,
    scored_sets,
    weigh_subject_votes,
    with_suggested_sets,
)
from likewise.curate.audit.page import write_page
from likewise.curate.audit.read import FORECAST_FILE, OWN_FILE, PROOF_FILE, QUEUE_FILE
from likewise.curate.audit.records import (
    Errors,
    ExplainedErrors,
    RetrievalErrors,
    SplitQuality,
    Subject,
    WrongPairs,
    has_own_split,
)
from likewise.curate.audit.retrain import retrain_with_suggestions
from likewise.curate.audit.review_queue import POSTERIOR_FILE
from likewise.curate.audit.source import folder_of, kind_of, open_subject
from likewise.curate.audit.weighed_votes import VOTE_FILES
from likewise.curate.audit.write import write_tables
from likewise.score.error_overlap import ErrorOverlap, overlap

OPTIONAL_FILES = (
    *("audit.json", "audit.html", "labels.csv", OWN_FILE),
    *(FORECAST_FILE, QUEUE_FILE, POSTERIOR_FILE, HEADS_FILE, PROOF_FILE),
    *VOTE_FILES,
)
"""Files of an audit folder that not every audit writes, or that mark it as complete."""


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
        from likewise.curate.audit.summary import findings_html

        return findings_html(self)


def audit_targets(config: Audit, say: Callable[[str], None] = print) -> Audited | ErrorOverlap:
    """Return the audit of one target; with `config.overlap`, the classes with most errors of several runs."""
    with executing("audit", config.executor):
        return overlap(config, say) if config.overlap else audit(config, say)


def audit(config: Audit, say: Callable[[str], None] = print) -> Audited:
    """Audit a run, a file of embeddings or data, write the audit folder, and retrain with the suggested labels if configured."""
    check(config)
    check_order(config)
    subject = open_subject(config, say)
    folder = folder_of(config)
    several = subject.items.label_sets is not None
    if several:
        check_label_set_settings(config)
    explained = nothing_explained() if several else explain(subject, config)
    weighed = weigh_subject_votes(subject, config)
    subject, quality = with_suggested_sets(subject, score_splits(subject, explained, config, weighed))
    copies = find_copies(subject, quality, config.quiet)
    conflicts = note_conflicts(subject, copies)
    trainable = add_copies(subject, quality, copies, across=False)
    quality = add_copies(subject, quality, copies)
    about = build_summary(subject, quality, explained, copies, config)
    about |= (set_summary(subject, quality) if several else {}) | {"conflicts": conflicts}
    if not several:
        about["votes"] = None if weighed is None else weighed.summary(subject.items)
    for name in OPTIONAL_FILES:  # audit.json too: a folder with files of two audits must not look complete
        (folder / name).unlink(missing_ok=True)
    write_tables(folder, subject, quality, explained, copies, about, weighed)
    if config.forecast:
        write_json(folder / "audit.json", without_nan(about))  # an interrupted forecast leaves a complete audit
        forecast_audit(subject, quality, config, folder)
    finish(folder, subject, about, config)
    if config.retrain:
        about["retrain"] = retrain_with_suggestions(subject, trainable, config, folder, say)
        finish(folder, subject, about, config)
    return Audited(folder, about)


def check_order(config: Audit) -> None:
    """Raise if an order is set without the forecast that writes it."""
    if config.order != "suspicion" and not config.forecast:
        raise LikewiseError(
            f"audit: --order {config.order} must be used with --forecast, which writes the queue; add --forecast"
        )


def check_label_set_settings(config: Audit) -> None:
    """Raise if a setting does not apply to data with several labels per sample."""
    for name in ("retrain", "verify", "forecast"):
        if getattr(config, name):
            raise LikewiseError(
                f"audit: --{name} does not apply to samples with several labels; review the findings, and train on corrected.csv"
            )


def nothing_explained() -> ExplainedErrors:
    """Return no retrieval errors: which neighbours are errors is not defined where samples share some of their labels."""
    none, distance = torch.zeros(0, dtype=torch.long), torch.zeros(0)
    empty = WrongPairs(none, none, none, none, distance)
    return ExplainedErrors(RetrievalErrors(empty, empty), Errors(none.new_zeros(0, 2), distance, none, []))


def set_summary(subject: Subject, quality: dict[str, SplitQuality]) -> dict:
    """Return what audit.json has about samples with several labels: the single labels, and the number of wrong ones."""
    found, names = scored_sets(subject, quality), subject.items.label_name or ()
    wrong = sum(one.states.expected for one in found)
    return {"errors": {}, "labels": label_facts(found, names), "expected_wrong": wrong}


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
            "flagged": int((found.state == "flagged").sum()),
            "states": found.state_counts,
            "unknown_reason": unknown_reason(found), "of_all": found.classes.of_all, "of_touched": found.classes.of_touched,
            "any": scored.any, "similar": scored.similar,
            "candidates": None if scored.search is None else scored.search._asdict(),
        }  # fmt: skip
    used = [name for name in SCORE_DESCRIPTIONS if any(name in found.single for found in quality.values())]
    names, split_of, pairs = list(subject.splits), copies.split_of, copies.found
    between = [f"{names[split_of[a]]}-{names[split_of[b]]}" for a, b in zip(pairs.row, pairs.other)]
    items, first = subject.items, next(iter(subject.splits))
    return {
        "target": str(config.targets[0]),
        "kind": {"run": "run", "data": "data"}.get(kind_of(config.targets[0]), "embeddings"),
        "opened": {"checkpoint": config.checkpoint, "data": config.data, "root": config.root},
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
            "queries": len(subject.test.e.y if explained.queries is None else explained.queries),
            "confusion": len(explained.pairs.confusion.query), "mis_similar": len(explained.pairs.mis_similar.query),
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


def without_nan(value):
    """Return a value with NaN and infinity replaced by None, because JSON has neither."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
