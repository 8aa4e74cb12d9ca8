"""calibrate: a run -> thresholds with a promise and probabilities, from the validation classes of the run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from likewise.core.contracts import Relevance
from likewise.core.devices import choose_device
from likewise.core.files import check_output_path
from likewise.core.progress import bar
from likewise.core.render.figures import save_figure
from likewise.core.render.tables import Table, show_table
from likewise.core.settings import Calibrate, Train, check
from likewise.core.settings.spec import brief, describe
from likewise.core.types import Items, LikewiseError
from likewise.deploy.calibration.calibration_view import draw_calibration
from likewise.deploy.calibration.fit_calibration import Target, at_most, build_calibration
from likewise.deploy.calibration.thresholds import PROMISE_LEVEL
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
"""Most validation images that are used and stored: 20 MB at 512 dimensions."""

FIGURE_FILE = "calibration.png"


def calibrate(config: Calibrate, say=print) -> Calibrated:
    """Return the calibration of a run, and write it with its figure and the embeddings it is made from."""
    check(config)
    target = target_of(config)
    out = check_output_path(config.out, ".png", "calibrate") if config.out else Path(config.run) / FIGURE_FILE
    opened = OpenRun(
        Run(config.run), device=choose_device(config.device), data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = opened.items
    check_classes(opened.settings, items)
    rows = at_most(validation_rows(opened, items), items.y, MAX_VALIDATION_ROWS)
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
