"""Histograms of the suspicion of labels during training, from the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from likewise.report.records import SuspicionHistogram


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
