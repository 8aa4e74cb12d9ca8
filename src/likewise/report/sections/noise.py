"""Section "Label noise": suspicion of the training labels, detection of wrong labels, and flagged labels with their images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image

from likewise.core.settings.spec import brief
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.read import read_about, read_findings
from likewise.data.dataset import inject_noise, make_protocol
from likewise.data.images import file_of
from likewise.report.section import (
    Packing,
    ReportTarget,
    Section,
    Study,
)
from likewise.report.thumbnails import read_thumbnails
from likewise.runs.folder import Run
from likewise.runs.training_files import FinalWeights, read_sample_weights
from likewise.score.metrics.detection import detection

MAX_TRANSITION_CLASSES = 30
"""Largest number of classes in a transition matrix."""


@dataclass(frozen=True, eq=False)
class SuspicionHistogram:
    """Histogram of the suspicion of labels after an epoch, for right and wrong labels separately if the true labels are known."""

    title: str  # "after the first epoch, step 52"
    edge: Float[np.ndarray, "E"]
    right: Int[np.ndarray, "bins"]  # all labels if `wrong` is None
    wrong: Int[np.ndarray, "bins"] | None
    weight: tuple[float | None, ...]  # mean sample weight in each bin
    threshold: float | None


@dataclass(frozen=True, eq=False)
class Detection:
    """Detection curve: share of the wrong labels found against the share of samples inspected, most suspect first."""

    name: str
    inspected: Float[np.ndarray, "P"]
    found: Float[np.ndarray, "P"]
    ap: float
    auroc: float


@dataclass(frozen=True, eq=False)
class FlaggedLabel:
    """A training label with a high suspicion, and the suggested label ("": none)."""

    row: int
    given: str
    suggested: str
    suspicion: float
    weight: float
    wrong: bool | None  # None: the true label is unknown
    caption: str = ""
    image: Image.Image | None = None


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """The label noise of a run: suspicion, detection of wrong labels, and flagged labels.

    `transition[i, j]`: share of the samples of true class `classes[i]` with the given label `classes[j]`, for the classes
    with the most wrong labels. `share` is the noise rate; None if the true labels are unknown.
    """

    model: str  # the noise model that injected wrong labels; "": none
    confidence: str  # "": none
    share: float | None
    suspicion: tuple[SuspicionHistogram, ...] = ()
    detection: tuple[Detection, ...] = ()
    flagged: tuple[FlaggedLabel, ...] = ()
    classes: tuple[str, ...] = ()
    transition: Float[np.ndarray, "M M"] | None = None
    notes: tuple[str, ...] = ()


def suspicion_histograms(lines: Iterable[Mapping]) -> tuple[SuspicionHistogram, ...]:
    """Return the histograms of the first, the middle and the last epoch in the log; fewer for a short log."""
    epochs = [(line["step"], line["suspicion"]) for line in lines if "suspicion" in line]
    chosen = sorted({0, (len(epochs) - 1) // 2, len(epochs) - 1}) if epochs else []
    heads = {0: "after the first epoch", len(epochs) - 1: "at the end"}
    found = []
    for place in chosen:
        step, one = epochs[place]
        right, wrong = (one[kind] and np.array(one[kind], np.int64) for kind in ("right", "wrong"))
        edge = np.linspace(*one["edges"], len(right) + 1)  # pyright: ignore[reportCallIssue]
        title = f"{heads.get(place, 'half-way')}, step {step}"
        found.append(SuspicionHistogram(title, edge, right, wrong, tuple(one["weight"]), one["threshold"]))
    return tuple(found)


def noise_of(one: ReportTarget, lines: Sequence[dict], top: int) -> LabelNoise | None:
    """Return the label noise of a run from its log, sample weights and audit.

    Returns None for a run without a confidence, noise model, known true labels and audit.
    """
    run, settings = one.run, one.settings
    assert run is not None and settings is not None
    has_audit = (run.path / "audit" / "audit.json").exists()
    given, notes = one.data, []
    protocol = None
    if given is not None:
        try:
            protocol = make_protocol(settings)
            given = inject_noise(given, protocol, settings.noise, settings.seed, settings.allow_imports)
        except LikewiseError as error:
            given, notes = None, [f"its training labels could not be rebuilt ({error})"]
    known = given is not None and given.y_clean is not None
    if not (settings.confidence or settings.noise or known or has_audit):
        return None
    rows = wrong = share = None
    if given is not None and given.y_clean is not None and protocol is not None:
        rows, wrong = protocol.rows(given, "train"), given.y != given.y_clean
        share = float(wrong[rows].mean()) if len(rows) else None
    final, curves, flagged = None, [], ()
    try:
        final = read_sample_weights(run.path, "report")
    except LikewiseError as error:
        notes.append(str(error))
    if final is not None:
        flagged, note = flagged_labels(final, given, wrong, lines, top)
        assert settings.confidence is not None
        curves += detection_by_training(final, wrong, brief(settings.confidence))
        notes.append(note)
    elif settings.confidence and not run.done:
        notes.append("flagged labels are listed when training has finished")
    if has_audit:
        try:
            curves += detection_by_audit(run)
            flagged = flagged or flagged_by_audit(run, wrong, top)
        except LikewiseError as error:
            notes.append(f"its audit could not be read ({error})")
    classes, matrix = transition(given, rows) if given is not None and rows is not None and share else ((), None)
    return LabelNoise(
        settings.noise or "", brief(settings.confidence) if settings.confidence else "", share,
        suspicion_histograms(lines), tuple(curves), flagged, classes, matrix, tuple(notes),
    )  # fmt: skip


def flagged_labels(
    final: FinalWeights, items: Items | None, wrong: Bool[np.ndarray, "N"] | None, lines: Sequence[dict], top: int
) -> tuple[tuple[FlaggedLabel, ...], str]:
    """Return the `top` labels with the highest suspicion at the end of training, and a sentence on their number.

    Ties are ordered by the sample weight, lowest first.
    """
    row, given, label, suspicion, weight = final
    known = np.where(np.isfinite(suspicion), suspicion, -np.inf)
    worst = np.lexsort((weight, -known))[:top]
    flagged = tuple(
        FlaggedLabel(
            int(row[i]), str(given[i]), str(label[i]) if label[i] != given[i] else "", float(suspicion[i]),
            float(weight[i]), None if wrong is None else bool(wrong[row[i]]), caption_of(items, int(row[i])),
        )
        for i in worst
    )  # fmt: skip
    threshold = next((line["suspicion"]["threshold"] for line in reversed(lines) if "suspicion" in line), None)
    if threshold is None:
        return flagged, f"{len(row)} labels have a sample weight"
    return flagged, f"{(known >= threshold).sum()} of {len(row)} labels have a suspicion of {threshold:.3g} or more"


def caption_of(items: Items | None, row: int) -> str:
    """Return the file name of a sample; "" if it has none."""
    return "" if items is None or items.path is None else file_of(items, row).replace("\\", "/").rpartition("/")[2]


def detection_by_training(final: FinalWeights, wrong: Bool[np.ndarray, "N"] | None, name: str) -> list[Detection]:
    """Return the detection curve of the final suspicion; of the sample weights for a confidence without suspicion.

    The list is empty if the true labels are unknown, or if all labels are right or all are wrong.
    """
    if wrong is None:
        return []
    score, word = -final.suspicion, "suspicion"
    if not np.isfinite(score).any():
        score, word = final.weight, "sample weight"
    scored = np.isfinite(score)  # samples that were in no batch have no suspicion
    bad = wrong[final.row[scored]]
    if not bad.any() or bad.all():
        return []
    found = detection(torch.as_tensor(score[scored]), torch.as_tensor(bad))
    inspected, share = np.array(found.curve).T
    return [Detection(f"{name}, {word} at the end", inspected, share, found.AP, found.AUROC)]


def detection_by_audit(run: Run) -> list[Detection]:
    """Return the detection curve that the audit of the run measured; an empty list if it measured none."""
    measured = read_about(run.path / "audit" / "audit.json").get("measured") or {}
    if "score" not in measured:
        return []
    one = measured["score"]
    inspected, share = np.array(one["curve"], float).T
    return [Detection("audit of the finished network", inspected, share, one["AP"], one["AUROC"])]


def flagged_by_audit(run: Run, wrong: Bool[np.ndarray, "N"] | None, top: int) -> tuple[FlaggedLabel, ...]:
    """Return the `top` training labels with the lowest label scores of the audit. Their suspicion is 1 - label score."""
    found = [one for one in read_findings(run.path / "audit").suspects if one.split in ("train", "all")]
    return tuple(
        FlaggedLabel(
            one.row, one.label, one.suggested, 1 - (one.score or 0.0), float("nan"),
            None if wrong is None else bool(wrong[one.row]), one.name,
        )
        for one in found[:top]
    )  # fmt: skip


def transition(
    items: Items, rows: Int[np.ndarray, "n"], most: int = MAX_TRANSITION_CLASSES
) -> tuple[tuple[str, ...], Float[np.ndarray, "M M"]]:
    """Return the `most` classes with the most wrong labels, and the share of each true class that was given each label."""
    assert items.y_clean is not None
    true, given = items.y_clean[rows], items.y[rows]
    wrong = np.bincount(true[true != given], minlength=items.classes)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:most])
    shown = shown[wrong[shown] > 0]
    place = np.full(items.classes, -1)
    place[shown] = np.arange(len(shown))
    in_matrix = (place[true] >= 0) & (place[given] >= 0)
    matrix = np.zeros((len(shown), len(shown)))
    np.add.at(matrix, (place[true[in_matrix]], place[given[in_matrix]]), 1)
    size = np.bincount(true, minlength=items.classes)[shown]
    return tuple(items.class_name[c] for c in shown), matrix / size[:, None]


def of_run(study: Study) -> LabelNoise | None:
    """Return the label noise of a run, with the images of its flagged labels."""
    one = study.one
    found = None if one.run is None else noise_of(one, study.log, study.config.top)
    if found is None or not found.flagged or one.data is None or one.data.path is None or not study.config.max_images:
        return found
    rows = [label.row for label in found.flagged]
    small, _ = read_thumbnails(one.data, rows, title="read flagged images", quiet=study.config.quiet)
    flagged = tuple(dataclasses.replace(label, image=small.get(label.row)) for label in found.flagged)
    return dataclasses.replace(found, flagged=flagged)


def pack(found: LabelNoise, packing: Packing) -> dict:
    """Return the fields of the record, with the index of an image (`slot`) in place of the image."""
    flagged = []
    for one in found.flagged:
        fields = {name: value for name, value in vars(one).items() if name != "image"}
        flagged.append(fields | {"slot": None if one.image is None else packing.add_image(one.image)})
    return vars(found) | {"flagged": flagged}


SECTION = Section("noise", "Label noise", "Label noise", of_run=of_run, pack=pack)
