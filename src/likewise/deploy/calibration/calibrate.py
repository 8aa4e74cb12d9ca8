"""calibrate: a run -> thresholds with a promise and probabilities, from the validation classes of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtri

from likewise.core.contracts import Relevance
from likewise.core.devices import choose_device
from likewise.core.files import check_output_path
from likewise.core.progress import bar
from likewise.core.render.figures import BETTER_COLOUR, COLOURS, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, save_figure
from likewise.core.render.tables import Table, show_table
from likewise.core.settings import Calibrate, Train, check
from likewise.core.settings.spec import brief, describe
from likewise.core.types import Items, LikewiseError
from likewise.deploy.calibration.fit_calibration import MIN_CALIBRATION_CLASSES, Target, at_most, build_calibration
from likewise.deploy.calibration.threshold_promises import PROMISE_LEVEL
from likewise.runs.calibration import (
    CALIBRATION_FILE,
    Calibration,
    Threshold,
    Validation,
    write_calibration,
    write_validation,
)
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.score.scoring import as_compared

DECISION_TEXTS = {
    "pair": "two images show the same class",
    "unknown": "the nearest neighbour is of a known class",
}
"""Threshold -> what is accepted from it on."""


@dataclass(frozen=True)
class Calibrated:
    """A calibration, the run it belongs to, its figure, and remarks about it."""

    calibration: Calibration
    run: Path
    figure: Path
    notes: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Return the thresholds as a table, with what they promise below it."""
        made = self.calibration
        errors = "false accepts" if made.pair.aim == "false accepts" else "wrong among accepted"
        columns = [
            "accept",
            f"{'cosine' if made.similarity == 'cosine' else 'minus distance'} from",
            f"{errors}, at most",
        ]
        columns += ["in validation", "true accepts"]
        lines = [[text, *cells(getattr(made, name))] for name, text in DECISION_TEXTS.items()]
        return Table(f"{self.run}: {made.pair.classes} validation classes", columns, lines, self.remarks(), self.run)

    def remarks(self) -> list[str]:
        """Return the promise in words, refusals, and where the results are."""
        made, level = self.calibration, 100 * PROMISE_LEVEL
        said = [
            f"{DECISION_TEXTS[name]}: no threshold; {one.reason}" for name, one in parts(made).items() if one.reason
        ]
        said += [
            f"promised for {made.pair.classes} new classes, in {level:g} % of choices of classes; every class counts the same; "
            f"the gallery has {made.gallery['classes']} classes and {made.gallery['rows']:,} rows",
            f"nearest neighbours of known classes are right in {100 * made.prevalence:.1f} %; their probability is off by "
            f"{100 * made.curves['calibration_error'][0]:.1f} % on classes held out",
        ]
        if made.pair.aim == "precision":
            said.append(
                f"precision of two images holds if {100 * made.same_pairs:.2g} % of compared pairs show the same class, as in "
                "validation; that of neighbours if the class of every query is in the gallery"
            )
        return [*said, *self.notes, f"calibration: {self.run / CALIBRATION_FILE}", f"figure: {self.figure}"]

    def _repr_html_(self) -> str | None:
        return self.table()._repr_html_()


def parts(made: Calibration) -> dict[str, Threshold]:
    """Return both thresholds by name."""
    return {"pair": made.pair, "unknown": made.unknown}


def cells(one: Threshold) -> list[str]:
    """Return the cells of a threshold in the table."""
    if one.value is None:
        return ["none", f"{100 * one.rate:.3g} % refused", "", ""]
    return [f"{one.value:.4f}", *(f"{100 * value:.3g} %" for value in (one.rate, one.observed, one.true_accepts))]


MAX_VALIDATION_ROWS = 10_000
"""Most validation images that are used and stored by default: 20 MB at 512 dimensions."""

FIGURE_FILE = "calibration.png"


def calibrate(config: Calibrate, say=print) -> Calibrated:
    """Return the calibration of a run, and write it with its figure and the embeddings it is made from."""
    check(config)
    if config.queries is not None and config.queries < 2 * MIN_CALIBRATION_CLASSES:
        raise LikewiseError(
            f"calibrate: --queries must be {2 * MIN_CALIBRATION_CLASSES} or more, two images of {MIN_CALIBRATION_CLASSES} "
            f"classes, got {config.queries}; thousands give good bounds"
        )
    target = target_of(config)
    out = check_output_path(config.out, ".png", "calibrate") if config.out else Path(config.run) / FIGURE_FILE
    opened = OpenRun(
        Run(config.run), device=choose_device(config.device), data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = opened.items
    check_classes(opened.settings, items)
    every = validation_rows(opened, items)
    rows = at_most(every, items.y, config.queries or MAX_VALIDATION_ROWS)
    e = as_compared(opened.embed(items, rows, title="embed val split"), opened.similarity)
    kept, y = np.unique(items.y[rows], return_inverse=True)
    names = tuple(items.class_name[c] for c in kept)
    group = None if items.group is None else items.group[rows]
    held = Validation(e.z.float().cpu().numpy(), y, names, opened.similarity, group)
    with bar("calibrate", 3, quiet=config.quiet) as shown:
        made = build_calibration(held, target, shown.advance)
    made = replace(made, about={"checkpoint": "best", "rate": "default" if target.rate is None else "given"})
    write_validation(opened.run.path, held)
    write_calibration(opened.run.path, made)
    save_figure(draw_calibration(made.curves, {name: one.value for name, one in parts(made).items()}), out)
    notes = [] if opened.run.done else ["this run is not finished, so this is its last checkpoint"]
    if len(rows) < len(every):
        drawn, of = (len(np.unique(items.y[some])) for some in (rows, every))
        notes.append(
            f"made from a random sample of {len(rows):,} of {len(every):,} validation images, of {drawn:,} of {of:,} classes "
            "(--queries)"
        )
    return Calibrated(made, opened.run.path, out, notes)


def check_classes(settings: Train, items: Items) -> None:
    """Raise if samples have several labels, or if the run compares single samples: a threshold needs samples of one class."""
    spec, reason = settings.relevance, ""
    if items.label_sets is not None:
        reason = f"those of '{items.name}' have several labels, so that a pair may share some of them"
    elif (
        spec is not None
        and getattr(describe(spec, Relevance, allow_imports=settings.allow_imports).kind, "by", "class") == "sample"
    ):
        reason = f"this run was trained with the relevance of single samples, {brief(spec)}"
    if reason:
        raise LikewiseError(
            f'calibrate: a threshold for "same class" needs samples of one class each, but {reason}; train on the labels of one '
            "kind (column `label`) to get thresholds, or read NDCG and R@1 of `likewise evaluate`"
        )


def target_of(config: Calibrate) -> Target:
    """Return the aim and rate of the settings; raises for rates that are none."""
    if config.far is not None and config.precision is not None:
        raise LikewiseError("calibrate: give --far or --precision, not both: each of them chooses the thresholds")
    for name, value in (("far", config.far), ("precision", config.precision)):
        if value is not None and not 0 < value < 1:
            raise LikewiseError(f"calibrate: --{name} must lie between 0 and 1, got {value}; such as 0.01 or 0.95")
    if config.precision is not None:
        return Target("precision", 1 - config.precision)
    return Target("false accepts", config.far)


def validation_rows(opened: OpenRun, items: Items) -> Int[np.ndarray, "n"]:
    """Return the rows of validation classes that did not train; raises if there are none."""
    rows, advice = opened.protocol.rows(items, "val"), 'train with --protocol "UnseenClasses(val=0.2)"'
    if not len(rows):
        raise LikewiseError(
            f"calibrate: '{opened.run.path}' must have a validation split, but has none: the classes that trained look better "
            f"than unseen ones, and test labels may not choose anything; {advice}"
        )
    trained = np.intersect1d(items.y[rows], items.y[opened.protocol.rows(items, "train")])
    if len(trained):
        raise LikewiseError(
            f"calibrate: validation classes must not be training classes, but {len(trained)} of '{items.name}' are both (first: "
            f"{items.class_name[trained[0]]}): a promise about unseen classes needs unseen classes; {advice}"
        )
    return rows


def show_calibrated(found: Calibrated, config: Calibrate) -> None:
    """Print the thresholds; nothing with --quiet."""
    if not config.quiet:
        show_table(found.table())


Curves = Mapping[str, Sequence[float]]
"""The field `curves` of calibration.json."""

CURVE_KINDS = {"pair": ("two images", BETTER_COLOUR), "unknown": ("nearest neighbour", COLOURS[2])}
"""Name of a threshold -> its name in a legend, and its colour."""

DET_TICKS = (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
"""Rates marked on the axes of a DET curve."""

MIN_DET_RATE = 5e-5
"""Lower bound of the rates in a DET curve; 1 minus it is the upper bound."""

PANEL_SIDE_INCHES = 3.7
"""Width and height of a panel."""


def draw_roc(axes: Axes, curves: Curves, chosen: Mapping[str, float | None]) -> None:
    """Draw the share of true accepts against the share of errors, on a logarithmic axis; a dot marks a chosen threshold."""
    for name, (label, colour) in CURVE_KINDS.items():
        errors, right = (np.asarray(curves[f"{name}_{what}"]) for what in ("errors", "true_accepts"))
        some = errors > 0
        axes.plot(errors[some], 100 * right[some], color=colour, lw=1.8, label=label)
        bound = np.asarray(curves[f"{name}_bound"])
        axes.plot(bound[some], 100 * right[some], color=colour, lw=1.1, ls="--")
        if (at := place_of(curves, name, chosen)) is not None:
            axes.plot(max(errors[at], errors[some].min(initial=1.0)), 100 * right[at], "o", color=colour, ms=6)
    axes.plot([], [], color=SOFT_COLOUR, lw=1.1, ls="--", label="bound on new classes")
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    finish(axes, "true accepts", "share of errors", "true accepts (%)", "upper left")


def draw_det(axes: Axes, curves: Curves, chosen: Mapping[str, float | None]) -> None:
    """Draw the share of false rejects against the share of errors, both on axes of normal quantiles."""
    for name, (label, colour) in CURVE_KINDS.items():
        errors = np.asarray(curves[f"{name}_errors"])
        misses = 1 - np.asarray(curves[f"{name}_true_accepts"])
        rarest = np.minimum(np.minimum(errors, 1 - errors), np.minimum(misses, 1 - misses))
        some = rarest > MIN_DET_RATE
        axes.plot(ndtri(errors[some]), ndtri(misses[some]), color=colour, lw=1.8, label=label)
        if (at := place_of(curves, name, chosen)) is not None and some[at]:
            axes.plot(ndtri(errors[at]), ndtri(misses[at]), "o", color=colour, ms=6)
    for side in (axes.xaxis, axes.yaxis):
        side.set_ticks(ndtri(np.asarray(DET_TICKS)), [f"{100 * rate:g}" for rate in DET_TICKS])
    axes.set_xlim(ndtri(MIN_DET_RATE), ndtri(0.5))
    axes.set_ylim(ndtri(0.005), ndtri(0.995))
    finish(axes, "false rejects", "errors (%)", "false rejects (%)", "lower left")


def draw_reliability(axes: Axes, curves: Curves) -> None:
    """Draw observed against predicted shares of right neighbours, cross-fitted by class; the grey line is equality."""
    axes.plot([0, 100], [0, 100], color=FAINT_COLOUR, lw=1.2)
    said, seen = (100 * np.asarray(curves[f"reliability_{what}"]) for what in ("predicted", "observed"))
    size = 20 + 300 * np.asarray(curves["reliability_share"])
    axes.plot(said, seen, color=BETTER_COLOUR, lw=1.2)
    axes.scatter(said, seen, s=size, color=BETTER_COLOUR, zorder=3)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    error = float(curves["calibration_error"][0])
    title = f"probability of the neighbour: off by {100 * error:.1f} %"
    finish(axes, title, "predicted (%)", "observed, held-out classes (%)", None)


def draw_calibration(curves: Curves, chosen: Mapping[str, float | None]) -> Figure:
    """Return the three panels beside each other.

    Args:
        chosen: the threshold of every kind; None: none was promised.
    """
    figure = Figure(figsize=(3 * PANEL_SIDE_INCHES, PANEL_SIDE_INCHES), facecolor="white", layout="constrained")
    roc, det, reliability = figure.subplots(1, 3)
    draw_roc(roc, curves, chosen)
    draw_det(det, curves, chosen)
    draw_reliability(reliability, curves)
    return figure


def place_of(curves: Curves, name: str, chosen: Mapping[str, float | None]) -> int | None:
    """Return the point of a curve nearest to a chosen threshold; None if there is none."""
    value = chosen.get(name)
    return None if value is None else int(np.abs(np.asarray(curves[f"{name}_threshold"]) - value).argmin())


def finish(axes: Axes, title: str, x: str, y: str, legend: Literal["upper left", "lower left"] | None) -> None:
    """Set texts and style of a panel."""
    axes.set_title(title, fontsize=10, color=INK_COLOUR, loc="left")
    axes.set_xlabel(x, fontsize=9, color=INK_COLOUR)
    axes.set_ylabel(y, fontsize=9, color=INK_COLOUR)
    axes.grid(color=FAINT_COLOUR, lw=0.5)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
    if legend is not None:
        axes.legend(loc=legend, fontsize=8, frameon=False, labelcolor=INK_COLOUR)
