"""Section "Training": every value in the training log, as a curve over the steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from likewise.report.section import Section, Study
from likewise.runs.folder import TEST_PREFIX

MAX_CURVE_POINTS = 600
"""Largest number of points of a curve; a longer curve shows means over equal pieces."""

LABEL_CURVES = {
    "weight": "mean sample weight", "suspected share": "flagged", "wrong labels": "estimated wrong", "labels used": "used",
    "labels repaired": "relabelled", "right among used": "right among used",
}  # fmt: skip
"""Key in the log -> name of the curve of labels."""

USED_CURVES = ("weight", "labels used", "right among used")
"""Keys in the log whose values are near 1; they share a panel, and the others, near 0, share another."""

DETECTION_CURVES = ("recall", "precision", "AUROC")
"""Keys in the log with the quality of the detection of wrong labels, if the true labels are known."""


@dataclass(frozen=True)
class Curve:
    """A logged value over the steps. Curves of the same `panel` share a figure."""

    panel: str  # "loss", "validation", "learning rate", "labels used", ...
    name: str
    step: list[int]
    value: list[float]


def draw_curves(lines: Iterable[Mapping]) -> tuple[Curve, ...]:
    """Return every number in the log as a curve, ordered by panel."""
    points_of: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for line in lines:
        for panel, name, value in values_of(line):
            if isinstance(value, int | float) and math.isfinite(value):
                points_of.setdefault((panel, name), []).append((int(line.get("step", 0)), float(value)))
    order = (
        "loss",
        "validation",
        "test during training",
        "labels used",
        "labels flagged",
        "wrong labels found",
        "components",
        "learning rate",
        "images/s",
    )
    return tuple(
        Curve(panel, name, *thin_out(points))
        for (panel, name), points in sorted(points_of.items(), key=lambda one: order.index(one[0][0]))
    )


def values_of(line: Mapping) -> Iterator[tuple[str, str, object]]:
    """Yield panel, name and value of every entry in a line of the log."""
    for key, value in line.items():
        if key == "loss":
            yield "loss", "loss", value
        elif key == "lr":
            yield from (("learning rate", name, rate) for name, rate in value.items())
        elif key == "images_per_s":
            yield "images/s", "images/s", value
        elif key in ("sample_weights", "relabelling"):
            facts = with_total(value)
            for name, word in ((name, word) for name, word in LABEL_CURVES.items() if name in facts):
                yield "labels used" if name in USED_CURVES else "labels flagged", word, facts[name]
            yield from (("wrong labels found", name, facts[name]) for name in DETECTION_CURVES if name in facts)
        elif key.startswith("val "):
            yield "validation", key.removeprefix("val "), value
        elif key.startswith(TEST_PREFIX):
            yield "test during training", key.removeprefix(TEST_PREFIX), value
        elif key not in ("step", "suspicion", "speed", "speed_ms"):
            yield "components", key, value


def thin_out(points: Sequence[tuple[int, float]], most: int = MAX_CURVE_POINTS) -> tuple[list[int], list[float]]:
    """Return steps and values; for more than `most` points, the last step and the mean value of equal pieces."""
    step, value = np.array([s for s, _ in points]), np.array([v for _, v in points])
    if len(step) > most:
        first = np.arange(0, len(step), math.ceil(len(step) / most))
        end = np.append(first[1:], len(step))
        step, value = step[end - 1], np.add.reduceat(value, first) / (end - first)
    return step.tolist(), value.tolist()


def with_total(facts: Mapping[str, float]) -> dict[str, float]:
    """Return the logged facts of a relabelling round, with the estimated shares of all kinds of wrong labels added up."""
    kinds = [value for name, value in facts.items() if name.startswith("wrong labels, ")]
    return {**facts} | ({"wrong labels": sum(kinds)} if kinds else {})


def of_run(study: Study) -> tuple[Curve, ...]:
    return draw_curves(study.log)


SECTION = Section("curves", "Training", "Training curves", of_run=of_run, is_first=True)
