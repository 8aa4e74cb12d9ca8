"""How far a training believed its labels, and how right it was where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from likewise.audit.read import read_about, read_findings
from likewise.config.spec import brief
from likewise.data.images import file_of
from likewise.metrics.detection import detection
from likewise.report.opened import Opened
from likewise.report.records import Detection, Doubt, Noise
from likewise.report.suspicion import suspicions
from likewise.runs.dataset import make_protocol, spoil
from likewise.runs.folder import Run
from likewise.runs.sample_weights import FinalWeights, read_sample_weights
from likewise.types import Items, LikewiseError

CLASSES = 30
"""Classes in a transition matrix, at most."""


def say_doubts(run: Run) -> str:
    """A sentence on the labels that a training did not believe in the end; nothing where it believed all."""
    final = read_sample_weights(run.path, "report")
    if final is None:
        return ""
    return (
        f"labels: of {len(final.row)}, {final.dropped.sum()} were left out in the end and {final.relabelled.sum()} "
        "taken for another class; "
        f"see `likewise report {run.path}`"
    )


def say_detected(run: Run, items: Items) -> list[str]:
    """Return sentences on the labels that a training flagged, checked against the true labels in `items`.

    A label is flagged if the training left its sample out in the end, or changed it.
    """
    trusted = read_sample_weights(run.path, "report")
    if trusted is None:
        return []
    given, label, changed = trusted.given, trusted.label, trusted.relabelled
    true = np.asarray(items.class_name)[items.y[trusted.row]]
    wrong, flagged = given != true, changed | trusted.dropped
    found, false, right = (flagged & wrong).sum(), (flagged & ~wrong).sum(), (changed & (label == true)).sum()
    return [
        f"robust doubted {flagged.sum()} of {len(given)} labels: {found} of the {wrong.sum()} wrong ones, and {false} right ones",
        f"it changed {changed.sum()} of them, {right} to the true class, and left out {trusted.dropped.sum()}",
    ]


def noise_of(one: Opened, lines: Sequence[dict], top: int) -> Noise | None:
    """What a run's log, its trust and its audit tell of its labels; None where nobody doubted them and none was spoiled."""
    run, settings = one.run, one.settings
    assert run is not None and settings is not None
    has_audit = (run.path / "audit" / "audit.json").exists()
    given, notes = one.data, []
    protocol = None
    if given is not None:
        try:
            protocol = make_protocol(settings)
            given = spoil(given, protocol, settings.noise, settings.seed, settings.allow_imports)
        except LikewiseError as error:
            given, notes = None, [f"its labels could not be rebuilt ({error})"]
    known = given is not None and given.y_clean is not None
    if not (settings.confidence or settings.noise or known or has_audit):
        return None
    rows = wrong = share = None
    if given is not None and given.y_clean is not None and protocol is not None:
        rows, wrong = protocol.rows(given, "train"), given.y != given.y_clean
        share = float(wrong[rows].mean()) if len(rows) else None
    trusted, curves, doubts = None, [], ()
    try:
        trusted = read_sample_weights(run.path, "report")
    except LikewiseError as error:
        notes.append(str(error))
    if trusted is not None:
        doubts, note = doubted(trusted, given, wrong, lines, top)
        assert settings.confidence is not None
        curves += found_by(trusted, wrong, brief(settings.confidence))
        notes.append(note)
    elif settings.confidence and not run.done:
        notes.append("doubted labels are listed when training has finished")
    if has_audit:
        try:
            curves += audited(run)
            doubts = doubts or audit_doubts(run, wrong, top)
        except LikewiseError as error:
            notes.append(f"its audit could not be read ({error})")
    classes, matrix = transition(given, rows) if given is not None and rows is not None and share else ((), None)
    return Noise(
        settings.noise or "", brief(settings.confidence) if settings.confidence else "", share,
        suspicions(lines), tuple(curves), doubts, classes, matrix, tuple(notes),
    )  # fmt: skip


def doubted(
    trusted: FinalWeights, items: Items | None, wrong: Bool[np.ndarray, "N"] | None, lines: Sequence[dict], top: int
) -> tuple[tuple[Doubt, ...], str]:
    """The labels most suspected when training ended, and how many there are. Equals go by their weight."""
    row, given, label, suspicion, weight = trusted
    known = np.where(np.isfinite(suspicion), suspicion, -np.inf)
    worst = np.lexsort((weight, -known))[:top]
    doubts = tuple(
        Doubt(
            int(row[i]), str(given[i]), str(label[i]) if label[i] != given[i] else "", float(suspicion[i]),
            float(weight[i]), None if wrong is None else bool(wrong[row[i]]), caption_of(items, int(row[i])),
        )
        for i in worst
    )  # fmt: skip
    threshold = next((line["suspicion"]["threshold"] for line in reversed(lines) if "suspicion" in line), None)
    if threshold is None:
        return doubts, f"{len(row)} labels were judged"
    return doubts, f"{(known >= threshold).sum()} of {len(row)} labels have a suspicion of {threshold:.3g} or more"


def caption_of(items: Items | None, row: int) -> str:
    return "" if items is None or items.path is None else file_of(items, row).replace("\\", "/").rpartition("/")[2]


def found_by(trusted: FinalWeights, wrong: Bool[np.ndarray, "N"] | None, name: str) -> list[Detection]:
    """How soon wrong labels are found by the suspicion at the end of training; by the weight, where nothing was suspected."""
    if wrong is None:
        return []
    score, word = -trusted.suspicion, "suspicion"
    if not np.isfinite(score).any():
        score, word = trusted.weight, "weight"
    judged = np.isfinite(score)  # samples that never were in a batch have none
    bad = wrong[trusted.row[judged]]
    if not bad.any() or bad.all():
        return []
    found = detection(torch.as_tensor(score[judged]), torch.as_tensor(bad))
    inspected, share = np.array(found.curve).T
    return [Detection(f"{name}, {word} at the end", inspected, share, found.AP, found.AUROC)]


def audited(run: Run) -> list[Detection]:
    """How soon the run's audit finds them, as it was measured."""
    measured = read_about(run.path / "audit" / "audit.json").get("measured") or {}
    if "score" not in measured:
        return []
    one = measured["score"]
    inspected, share = np.array(one["curve"], float).T
    return [Detection("audit of the finished network", inspected, share, one["AP"], one["AUROC"])]


def audit_doubts(run: Run, wrong: Bool[np.ndarray, "N"] | None, top: int) -> tuple[Doubt, ...]:
    """The training labels that the audit suspects most; its score is low where a label is suspect."""
    found = [one for one in read_findings(run.path / "audit").suspects if one.split in ("train", "all")]
    return tuple(
        Doubt(
            one.row, one.label, one.suggested, 1 - one.score, float("nan"),
            None if wrong is None else bool(wrong[one.row]), one.name,
        )
        for one in found[:top]
    )  # fmt: skip


def transition(
    items: Items, rows: Int[np.ndarray, "n"], most: int = CLASSES
) -> tuple[tuple[str, ...], Float[np.ndarray, "M M"]]:
    """Shares of the samples of every true class that were given each label, of the classes with most wrong labels."""
    assert items.y_clean is not None
    true, given = items.y_clean[rows], items.y[rows]
    wrong = np.bincount(true[true != given], minlength=items.classes)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:most])
    shown = shown[wrong[shown] > 0]
    place = np.full(items.classes, -1)
    place[shown] = np.arange(len(shown))
    drawn = (place[true] >= 0) & (place[given] >= 0)
    matrix = np.zeros((len(shown), len(shown)))
    np.add.at(matrix, (place[true[drawn]], place[given[drawn]]), 1)
    size = np.bincount(true, minlength=items.classes)[shown]
    return tuple(items.class_name[c] for c in shown), matrix / size[:, None]
