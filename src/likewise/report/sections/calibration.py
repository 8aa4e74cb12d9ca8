"""Section "Known or unknown": the thresholds of a calibrated run, their promises, and the curves that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from likewise.deploy.calibration.threshold_promises import describe_promise
from likewise.report.section import Section, Study
from likewise.runs.calibration import Calibration, Threshold, read_calibration

THRESHOLD_NAMES = {"pair": "same class or not", "unknown": "known class or unknown"}
"""Field of a calibration -> the decision that its threshold makes."""


@dataclass(frozen=True)
class Decision:
    """A threshold as a line of the table, and the share of errors (observed, and its bound) against missed accepts."""

    name: str
    value: float | None
    promise: str
    rate: float
    observed: float | None
    missed: float | None
    curve: Mapping[str, list[float]]


@dataclass(frozen=True)
class Decisions:
    """The thresholds of a run, and the reliability of its probabilities."""

    similarity: str
    gallery: str
    decisions: tuple[Decision, ...]
    reliability: Mapping[str, list[float]]
    error: float | None


def of_run(study: Study) -> Decisions | None:
    """Return the calibration of a run; None if it is not calibrated."""
    run = study.one.run
    found = None if run is None else read_calibration(run.path)
    return None if found is None else summarise(found)


def summarise(found: Calibration) -> Decisions:
    """Return a calibration as the tables and curves of the section."""
    of, curves = found.gallery, found.curves
    gallery = f"{of['rows']:,} rows of {of['classes']:,} classes" if {"rows", "classes"} <= of.keys() else ""
    decisions = tuple(decision(getattr(found, name), name, curves) for name in THRESHOLD_NAMES)
    reliability = {
        name: list(curves[f"reliability_{name}"])
        for name in ("predicted", "observed", "share")
        if f"reliability_{name}" in curves
    }
    error = curves.get("calibration_error", [])
    return Decisions(found.similarity, gallery, decisions, reliability, float(error[0]) if len(error) else None)


def decision(threshold: Threshold, name: str, curves: Mapping[str, list[float]]) -> Decision:
    """Return a threshold with its curve: missed accepts, errors and their bound, where the stored curves have them."""
    refused, curve = threshold.value is None, {}
    if f"{name}_true_accepts" in curves:
        curve = {
            "missed": [1 - share for share in curves[f"{name}_true_accepts"]],
            "errors": list(curves[f"{name}_errors"]),
            "bound": list(curves[f"{name}_bound"]),
        }
    return Decision(
        THRESHOLD_NAMES[name],
        threshold.value,
        describe_promise(threshold, name),
        threshold.rate,
        None if refused else threshold.observed,
        None if refused else 1 - threshold.true_accepts,
        curve,
    )


SECTION = Section(
    "calibration",
    "Known or unknown",
    "Decisions: same class, known class, unknown",
    "Thresholds of similarity from the validation classes, with a bound of their errors on new classes. Errors are shown against "
    "missed accepts at every threshold (the dot is the chosen one); probabilities against the share that was right.",
    of_run=of_run,
)
