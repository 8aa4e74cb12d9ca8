"""Section "Training": everything that a training logged, as curves over its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from likewise.report.section import Packing, Section, Study
from likewise.runs.log import TEST_PREFIX

POINTS = 600
"""Of a curve, at most; a longer one is shown by the means of pieces."""

LABELS = {
    "weight": "mean weight", "suspected share": "suspected", "wrong labels": "thought wrong", "labels used": "used",
    "labels repaired": "repaired", "right among used": "right among used",
}  # fmt: skip
FOUND = ("recall", "precision", "AUROC")
"""What is known of wrong labels where the truth is: how well they are found."""


class Curve(NamedTuple):
    """Something that was logged while training. Curves of one `panel` are drawn together."""

    panel: str  # "loss", "validation", "learning rate", "labels", ...
    name: str
    step: list[int]
    value: list[float]


def draw_curves(lines: Iterable[Mapping]) -> tuple[Curve, ...]:
    """Everything in the log that is a number at a step, in panels: loss, validation, test, learning rate, labels, detection,
    speed, and what parts tell of themselves."""
    seen: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for line in lines:
        for panel, name, value in values_of(line):
            if isinstance(value, int | float) and math.isfinite(value):
                seen.setdefault((panel, name), []).append((int(line.get("step", 0)), float(value)))
    order = (
        "loss",
        "validation",
        "test, on the way",
        "labels",
        "wrong labels found",
        "parts",
        "learning rate",
        "images/s",
    )
    return tuple(
        Curve(panel, name, *thin_out(points))
        for (panel, name), points in sorted(seen.items(), key=lambda one: order.index(one[0][0]))
    )


def values_of(line: Mapping) -> Iterator[tuple[str, str, object]]:
    """Panel, name and value of everything in a line."""
    for key, value in line.items():
        if key == "loss":
            yield "loss", "loss", value
        elif key == "lr":
            yield from (("learning rate", name, rate) for name, rate in value.items())
        elif key == "images_per_s":
            yield "images/s", "images/s", value
        elif key in ("trust", "verdict"):
            facts = together(value)
            yield from (("labels", word, facts[name]) for name, word in LABELS.items() if name in facts)
            yield from (("wrong labels found", name, facts[name]) for name in FOUND if name in facts)
        elif key.startswith("val "):
            yield "validation", key.removeprefix("val "), value
        elif key.startswith(TEST_PREFIX):
            yield "test, on the way", key.removeprefix(TEST_PREFIX), value
        elif key not in ("step", "suspicion", "speed", "speed_ms"):
            yield "parts", key, value


def thin_out(points: Sequence[tuple[int, float]], most: int = POINTS) -> tuple[list[int], list[float]]:
    """Steps and values; where there are many, the last step and the mean value of pieces of one length."""
    step, value = np.array([s for s, _ in points]), np.array([v for _, v in points])
    if len(step) > most:
        first = np.arange(0, len(step), math.ceil(len(step) / most))
        beyond = np.append(first[1:], len(step))
        step, value = step[beyond - 1], np.add.reduceat(value, first) / (beyond - first)
    return step.tolist(), value.tolist()


def together(verdict: Mapping[str, float]) -> dict[str, float]:
    """A verdict's facts, with all kinds of wrong labels it estimates added up."""
    kinds = [value for name, value in verdict.items() if name.startswith("wrong labels, ")]
    return {**verdict} | ({"wrong labels": sum(kinds)} if kinds else {})


def of_run(study: Study) -> tuple[Curve, ...]:
    return draw_curves(study.log)


def pack(curves: tuple[Curve, ...], packing: Packing) -> list[dict]:
    return [curve._asdict() for curve in curves]


SECTION = Section("curves", "Training", "Training", of_run=of_run, pack=pack, is_first=True)
