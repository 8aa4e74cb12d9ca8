"""What labels were judged by while training, read off its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from likewise.report.records import Suspicion


def suspicions(lines: Iterable[Mapping]) -> tuple[Suspicion, ...]:
    """What labels were judged by after the first pass, half-way and at the end, as far as there are so many."""
    passes = [(line["step"], line["suspicion"]) for line in lines if "suspicion" in line]
    places = sorted({0, (len(passes) - 1) // 2, len(passes) - 1}) if passes else []
    heads = {0: "after the first pass", len(passes) - 1: "at the end"}
    found = []
    for place in places:
        step, one = passes[place]
        right, wrong = (one[kind] and np.array(one[kind], np.int64) for kind in ("right", "wrong"))
        edge = np.linspace(*one["edges"], len(right) + 1)  # pyright: ignore[reportCallIssue]
        title = f"{heads.get(place, 'half-way')}, step {step}"
        found.append(Suspicion(title, edge, right, wrong, tuple(one["weight"]), one["threshold"]))
    return tuple(found)
