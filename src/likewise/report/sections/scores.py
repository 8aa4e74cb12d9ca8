"""Section "Scores": every metric of every run with its interval, on one scale per metric."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from likewise.report.section import Facts, RunView, Score, Section
from likewise.score.metrics import is_set_metric, low_is_good
from likewise.score.score_table import metric_lines


class Line(NamedTuple):
    """The score of a run, the positions of value and interval on the scale of the metric (0 to 1), and whether it is the best."""

    run: int
    score: Score
    at: float | None
    low: float | None
    high: float | None
    best: bool
    before: bool = False  # the network before training


class Scale(NamedTuple):
    """A metric, the ends of its scale as text ("": no scale), and a line for each run with this metric."""

    metric: str
    low: str
    high: str
    lines: list[Line]

    def reasons(self) -> list[str]:
        """Return why lines have no interval, each reason once."""
        return list(dict.fromkeys(line.score.reason for line in self.lines if line.score.reason))


def scales(facts: Facts) -> list[Scale]:
    """Return a scale for every metric of any run.

    A run is marked as best if its interval lies above the intervals of all other runs on the same samples. Metrics of a whole
    set have no best run: they describe the embedding.
    """
    names = dict.fromkeys(name for run in facts.runs for name in run.scores)
    return [scale(name, facts.runs) for name in names]


def scale(metric: str, runs: tuple[RunView, ...]) -> Scale:
    """Return the scale of one metric, which spans the intervals of all runs."""
    have = [(number, run.scores[metric]) for number, run in enumerate(runs) if metric in run.scores]
    before = baselines(metric, runs)
    with_interval = [score for _, score in before + have if known(score)]
    if not with_interval:
        lines = [Line(number, score, None, None, None, False, True) for number, score in before]
        return Scale(metric, "", "", lines + [Line(number, score, None, None, None, False) for number, score in have])
    low = min(score.low for score in with_interval if score.low is not None)
    high = max(score.high for score in with_interval if score.high is not None)
    pad = 0.12 * (high - low) or 0.01
    low, high = max(0.0, low - pad) if low >= 0 else low - pad, min(1.0, high + pad) if high <= 1 else high + pad
    same = len({runs[number].pool for number, _ in have}) == 1
    best = clear_best(metric, [score for _, score in have]) if same else None

    def line(number: int, score: Score, before: bool = False) -> Line:
        if not known(score):
            return Line(number, score, None, None, None, score is best, before)
        mean, least, most = ((end - low) / (high - low) for end in score[:3] if end is not None)
        return Line(number, score, mean, least, most, score is best, before)

    lines = [line(*one, True) for one in before] + [line(*one) for one in have]
    return Scale(metric, f"{100 * low:.0f}", f"{100 * high:.0f} %", lines)


def baselines(metric: str, runs: tuple[RunView, ...]) -> list[tuple[int, Score]]:
    """Return the scores before training, with the number of the run; runs that began alike have one in common."""
    found = {}
    for number, run in enumerate(runs):
        if metric in run.before:
            found.setdefault((run.pool, run.before[metric].text), (number, run.before[metric]))
    return list(found.values())


def known(score: Score) -> bool:
    """Return whether the mean and the interval of a score are finite numbers."""
    return all(value is not None and math.isfinite(value) for value in score[:3])


def clear_best(metric: str, scores: list[Score]) -> Score | None:
    """Return the score whose interval lies above those of all others (below, where low is good); None if there is none."""
    if is_set_metric(metric) or len(scores) < 2 or not all(map(known, scores)):
        return None
    sign = -1 if low_is_good(metric) else 1
    first, *others = sorted(scores, key=lambda score: -sign * score.mean)
    worst = min(sign * end for end in first[1:3] if end is not None)
    return first if all(worst > sign * end for other in others for end in other[1:3] if end is not None) else None


def context(facts: Facts) -> dict[str, Any]:
    """Return the scales, the sizes of the pools, and whether a run is marked as best; {} without scores."""
    found = scales(facts)
    if not found:
        return {}
    return {
        "scales": found,
        "explained": metric_lines([one.metric for one in found]),
        "drawn": [(run.name, run.sample) for run in facts.runs if run.sample],
        "samples": list(dict.fromkeys((len(p.row), p.split, len(p.class_name), p.name) for p in facts.pools)),
        "marked": any(line.best for one in found for line in one.lines),
        "named": len(facts.runs) > 1 or any(line.before for one in found for line in one.lines),
        "baselines": max((sum(line.before for line in one.lines) for one in found), default=0),
    }


SECTION = Section("scores", "Scores", "Scores", template="scores.html", context=context)
