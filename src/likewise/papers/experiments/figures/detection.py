"""Detection of injected label noise: how soon EIF, IF, the loss and the label score of every run of a table find wrong labels.

EIF and IF are influences of training samples on the errors of one test class; samples are inspected by their absolute value, and
for comparison by their signed value, the most harmful first. The study has one class, the one with the most errors.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, read_json, write_csv
from likewise.core.progress import bar
from likewise.core.render.figures import write_figure
from likewise.core.settings import Audit, Bench
from likewise.papers.experiments.grid_types import Grid, place_of
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable, label
from likewise.papers.render.detection_curve import Curve, draw_detection
from likewise.runs.scores import REWRITE_HINT
from likewise.score.metrics.detection import Detection, detection

DETECTION_FILE = "detected.json"
"""File of the run folder: how well each order of inspection detects the injected noise."""

INFLUENCE_NAMES = {"EIF": "finite", "IF": "lissa"}
"""Order of inspection by influence -> method of `audit.error_causes.influences`, both as in the study's code."""

SIGNED_SUFFIX = " signed"
"""Suffix of an order by the signed influence, the most harmful sample first."""

SHOWN_SCORES = {
    "score": "label score (ours)", "loss": "training loss", "EIF": "|EIF|", "EIF signed": "EIF", "IF": "|IF|", "IF signed": "IF",
}  # fmt: skip
"""Scores that are drawn -> their names in the legend. detection.csv has all scores."""

FORMAT_KEY, FORMAT_NUMBER = "format", 2
"""Entry of DETECTION_FILE; a file without it, or with another number, is computed again."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the detection curves of all runs as a PNG, and notes.

    Writes detection.csv, one line for each run, score and test class, and detection_curves.csv, the curves that are drawn.
    """
    groups: dict[tuple[str, str], list[dict]] = {}
    lines, notes = [], []
    with bar("score labels", len(done), quiet=config.quiet) as progress:
        for t in done:
            try:
                measured = detected(t.job.run.path, config)
            except LikewiseError as error:
                measured = {}
                notes.append(f"the labels of {label(list(t.cell.names.values()))} could not be scored: {error}")
            progress.advance(1)
            if not measured:
                continue
            row, column = place_of(grid, t.cell.names)
            groups.setdefault((label(row), label(column)), []).append(measured)
            lines += [[*t.cell.names.values(), *line] for line in csv_lines(measured)]
    if not groups:
        return None, notes or ["no training of this table has injected label noise, so there is nothing to detect"]
    write_csv(sheet.folder / "detection.csv", [*grid.axes, "score", "class", "AUROC", "AP", "recall", "share"], lines)
    curves = [curve for (row, column), runs in groups.items() for curve in mean_curves(row, column, runs)]
    write_curves(sheet.folder / "detection_curves.csv", curves)
    return write_figure(draw_detection(curves), sheet.folder / "detection.png"), [*describe(groups), *notes]


def csv_lines(measured: dict[str, dict]) -> list[list]:
    """Return score, test class ("" for a score that is not by class, or the mean over classes) and metrics of one run."""
    return [
        [score, name, found["AUROC"], found["AP"], found["recall"], one["share"]]
        for score, one in measured.items()
        for name, found in {"": one, **one.get("classes", {})}.items()
    ]


def mean_curves(row: str, column: str, runs: Sequence[dict[str, dict]]) -> list[Curve]:
    """Return the mean curve over runs of every shown score; thin: the worst class, the second worst, ..., mean over runs."""
    curves = []
    for score, name in SHOWN_SCORES.items():
        solid = SHOWN_SCORES[score.removesuffix(SIGNED_SUFFIX)]
        own = [run[score] for run in runs if score in run]
        if not own:
            continue
        at, found = (np.mean([np.array(one["curve"])[:, side] for one in own], 0) for side in (0, 1))
        ranked = zip(*(one.get("classes", {}).values() for one in own)) if name == solid else ()
        thin = [np.mean([np.array(each["curve"])[:, 1] for each in rank], 0) for rank in ranked]
        precision = 100 * float(np.mean([one["AP"] for one in own]))
        curves.append(Curve(row, column, name, at, found, f"AP {precision:.0f}", thin, "" if name == solid else solid))
    return curves


def write_curves(file: Path, curves: Sequence[Curve]) -> None:
    """Write the drawn curves: one line for each share of samples inspected."""
    lines = [
        [curve.row, curve.column, curve.name, at, found]
        for curve in curves
        for at, found in zip(curve.at.tolist(), curve.found.tolist())
    ]
    write_csv(file, ["method", "noise", "order", "inspected", "found"], lines)


def describe(groups: dict[tuple[str, str], list[dict]]) -> list[str]:
    """Return for every order of inspection a sentence with its average precision, and how to read the lines."""

    def precisions(score: str, of=lambda one: one["AP"]) -> str:
        means = {
            place: 100 * float(np.mean([of(run[score]) for run in runs if score in run]))
            for place, runs in groups.items()
            if any(score in run for run in runs)
        }
        return "; ".join(f"{label(place)} {mean:.0f}" for place, mean in means.items())

    notes = [
        "AP: average precision in per cent. Thin lines: the influence on single test classes, the worst, the second worst, and "
        "so on; the thick line is their mean. |EIF|, |IF|: largest absolute influence first; dashed: most harmful sample first."
    ]
    for score, name in SHOWN_SCORES.items():
        if found := precisions(score):
            notes.append(f"{name}, AP: {found}.")
    for score in INFLUENCE_NAMES:
        missing = sum(score not in run for runs in groups.values() for run in runs)
        if missing:
            notes.append(
                f"{score}: not computed for {missing} trainings, because they have no linear head, no error, or the recursion "
                "for the inverse Hessian diverged."
            )
        if found := precisions(score, lambda one: next(iter(one["classes"].values()))["AP"]):
            notes.append(f"|{score}| of the worst test class alone, as in the study, AP: {found}.")
    return notes


def detected(run: Path, config: Bench) -> dict[str, dict]:
    """Return how well each order of inspection detects the wrong labels of a run. Computed once, and stored in its folder."""
    file = run / DETECTION_FILE
    if file.exists():
        found = read_json(file, "bench", hint=REWRITE_HINT)
        if found.pop(FORMAT_KEY, None) == FORMAT_NUMBER:
            return found
    found = detect(run, config)
    with atomic_write(file) as aside:
        aside.write_text(json.dumps({FORMAT_KEY: FORMAT_NUMBER} | found), "utf-8")
    return found


def detect(run: Path, config: Bench) -> dict[str, dict]:
    """Return score -> detection metrics, of all label scores and of both influences; {} without wrong labels."""
    from likewise.curate.audit.error_causes import find_errors, influences
    from likewise.curate.audit.influence import LissaDiverged
    from likewise.curate.audit.label_quality import measure, score_splits
    from likewise.curate.audit.source import open_subject

    audit = Audit((str(run),), max_errors=0, quiet=True, device=config.device, allow_imports=config.allow_imports)
    subject = open_subject(audit, say=lambda line: None)
    if subject.items.y_clean is None:
        return {}
    explained = find_errors(subject, audit)
    effects: dict[str, Tensor] = {}
    if explained.g is not None and explained.errors.name:
        for name, method in INFLUENCE_NAMES.items():
            with suppress(LissaDiverged):  # IF is then left out of the figure, and a note names it
                blocks = influences(subject, explained.errors, method, explained.g, audit)
                effects[name] = torch.cat([block for _, block in blocks]).cpu().double()
        explained = dataclasses.replace(explained, pull=effects["EIF"].abs().sum(0))
    split = subject.splits["train"]
    found = measure(split, score_splits(subject, explained, audit)["train"], subject.items)["measured"] or {}
    if not found:
        return {}
    rows = split.e.row.numpy()
    wrong = torch.as_tensor(subject.items.y[rows] != subject.items.y_clean[rows])
    classes = [name for name, _ in explained.errors.name]
    for name, effect in effects.items():
        found[name] = by_class(effect.abs(), wrong, classes)
        found[name + SIGNED_SUFFIX] = by_class(effect, wrong, classes)
    return found


def by_class(effect: Float[Tensor, "Q N"], wrong: Bool[Tensor, "N"], classes: Sequence[str]) -> dict:
    """Return the detection metrics of the influence on every class, the highest inspected first, and their means.

    Args:
        effect: influence of every training sample on the errors of every class.
        classes: name of every class, the worst first.
    """
    each = [detection(-one, wrong) for one in effect]
    means = {name: float(np.mean([getattr(one, name) for one in each])) for name in Detection._fields[:-1]}
    curve = np.mean([one.curve for one in each], 0).tolist()
    named = {name: one._asdict() for name, one in zip(classes, each, strict=True)}
    return means | {"curve": curve, "share": float(wrong.double().mean()), "classes": named}
