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
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, read_json
from likewise.core.progress import bar
from likewise.core.render.figures import COLOURS, SOFT_COLOUR, shorten
from likewise.core.settings import Audit, Bench
from likewise.papers.benchmark_table import label
from likewise.papers.figures.drawing import Drawing, FinishedTable, dress, styled
from likewise.papers.grid import place_of
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

PANEL_WIDTH, PANEL_HEIGHT = 3.3, 2.9
"""Inches: size of a panel."""

MAX_TITLE_LETTERS = 36
"""Largest length of a line of the title of a panel."""


class Curve(NamedTuple):
    """One order of inspection of one method and noise model: share `found` at share inspected (`at`), mean over seeds.

    `about`: legend text beside the name. `classes`: the curves of single test classes, drawn thin; `found` is their mean.
    `dashed_of`: name of the curve whose colour this one has; it is drawn dashed.
    """

    row: str
    column: str
    name: str
    at: Float[np.ndarray, "T"]
    found: Float[np.ndarray, "T"]
    about: str = ""
    classes: Sequence[Float[np.ndarray, "T"]] = ()
    dashed_of: str = ""


def draw(table: FinishedTable) -> Drawing:
    """Return the detection curves of all runs, and notes.

    detection.csv has a line for each run, score and test class, and detection_curves.csv the curves that are drawn.
    """
    groups: dict[tuple[str, str], list[dict]] = {}
    lines, notes = [], []
    with bar("score labels", len(table.done), quiet=table.config.quiet) as progress:
        for t in table.done:
            try:
                measured = detected(t.job.run.path, table.config)
            except LikewiseError as error:
                measured = {}
                notes.append(f"the labels of {label(list(t.cell.names.values()))} could not be scored: {error}")
            progress.advance(1)
            if not measured:
                continue
            row, column = place_of(table.grid, t.cell.names)
            groups.setdefault((label(row), label(column)), []).append(measured)
            lines += [[*t.cell.names.values(), *line] for line in csv_lines(measured)]
    if not groups:
        reason = "no training of this table has injected label noise, so there is nothing to detect"
        return Drawing(None, notes or [reason])
    curves = [curve for (row, column), runs in groups.items() for curve in mean_curves(row, column, runs)]
    values = {
        "detection": ([*table.grid.axes, "score", "class", "AUROC", "AP", "recall", "share"], lines),
        "detection_curves": (["method", "noise", "order", "inspected", "found"], curve_lines(curves)),
    }
    return Drawing(draw_detection(curves), [*describe(groups), *notes], values)


def csv_lines(measured: dict[str, dict]) -> list[list]:
    """Return score, test class ("" for a score that is not by class, or the mean over classes) and metrics of one run."""
    return [
        [score, name, found["AUROC"], found["AP"], found["recall"], one["share"]]
        for score, one in measured.items()
        for name, found in {"": one, **one.get("classes", {})}.items()
    ]


def mean_curves(row: str, column: str, runs: Sequence[dict[str, dict]]) -> list[Curve]:
    """Return the mean curve over runs of every shown score.

    Its thin curves are means over runs too: of the worst class of each run, of the second worst, and so on.
    """
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


def curve_lines(curves: Sequence[Curve]) -> list[list]:
    """Return the drawn curves as lines of a table: one for each share of samples inspected."""
    return [
        [curve.row, curve.column, curve.name, at, found]
        for curve in curves
        for at, found in zip(curve.at.tolist(), curve.found.tolist())
    ]


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


@styled
def draw_detection(curves: Sequence[Curve]) -> Figure:
    """Return a figure with a row of panels per method and a column per noise model.

    The grey line is inspection in random order. Legends are in the lower right corner, which no better order reaches.
    """
    rows, columns = (list(dict.fromkeys(getattr(curve, side) for curve in curves)) for side in ("row", "column"))
    names = list(dict.fromkeys(curve.dashed_of or curve.name for curve in curves))
    size = (0.5 + PANEL_WIDTH * len(columns), 0.3 + PANEL_HEIGHT * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    for line, row in enumerate(rows):
        for place, column in enumerate(columns):
            axes = figure.add_subplot(len(rows), len(columns), line * len(columns) + place + 1)
            axes.plot([0, 100], [0, 100], color=SOFT_COLOUR, lw=1.2, label="random order")
            for curve in (c for c in curves if (c.row, c.column) == (row, column)):
                _draw_curve(axes, curve, COLOURS[names.index(curve.dashed_of or curve.name) % len(COLOURS)])
            below = "samples inspected (%)" if row == rows[-1] else ""
            dress(axes, _title(row, column), below, "wrong labels found (%)" if place == 0 else "")
            axes.set(xlim=(0, 100), ylim=(0, 102))
            _add_legend(axes)
    return figure


def _title(row: str, column: str) -> str:
    """Return the names of a panel in one line if they fit, otherwise each in a line of its own."""
    whole = ", ".join(filter(None, (row, column)))
    lines = [whole] if len(whole) <= MAX_TITLE_LETTERS else filter(None, (row, column))
    return "\n".join(shorten(line, MAX_TITLE_LETTERS) for line in lines)


def _draw_curve(axes: Axes, curve: Curve, colour: str) -> None:
    """Draw one curve, and below it the thin curves of its classes."""
    for found in curve.classes:
        axes.plot(100 * curve.at, 100 * found, color=colour, lw=0.6, alpha=0.4)
    text = f"{curve.name} {curve.about}".strip()
    style, width = ("--", 1.4) if curve.dashed_of else ("-", 1.9)
    axes.plot(100 * curve.at, 100 * curve.found, color=colour, ls=style, lw=width, label=text, zorder=3)


def _add_legend(axes: Axes) -> None:
    """Add the legend of a panel, with the random order last."""
    lines, texts = axes.get_legend_handles_labels()
    axes.legend(
        [*lines[1:], lines[0]], [*texts[1:], texts[0]], loc="lower right", fontsize=7.5, frameon=True, framealpha=0.85,
        edgecolor="none", borderaxespad=0.2, handlelength=1.4, labelspacing=0.25,
    )  # fmt: skip
