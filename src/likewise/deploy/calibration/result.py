"""The result of `likewise calibrate`: its table on the terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from likewise.core.render.tables import Table
from likewise.deploy.calibration.false_accepts import PROMISE_LEVEL
from likewise.runs.calibration import CALIBRATION_FILE, Calibration, Threshold

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
