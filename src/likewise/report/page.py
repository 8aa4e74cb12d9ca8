"""The page about some runs: one HTML file with everything inside, which opens anywhere and asks for nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from likewise.io.files import write_aside
from likewise.io.progress import bar
from likewise.metrics import of_the_set
from likewise.render.html import TEMPLATES, environment
from likewise.report.payload import first_blocks, many_blocks, pictures, said
from likewise.report.records import Facts, Score, Viewed
from likewise.report.sprites import Sheets, sheets

ROOM = 14_500_000
"""Characters that a page may have; what its data leaves of them is for pictures."""

SCRIPTS = (
    "dom", "blocks", "tiles", "charts", "findings", "gallery", "labels", "tree", "points", "view", "regions", "map", "report",
)  # fmt: skip
"""The page's code in the order of its parts: report.js starts it."""

SECTIONS = {
    "scores": "Scores", "curves": "Training", "map": "Map", "galleries": "Galleries", "compared": "Side by side",
    "confusion": "Confusions", "distances": "Similarities", "spectrum": "Spectrum", "noise": "Labels",
    "overlap": "Wrong classes", "tree": "Class tree", "notes": "Notes",
}  # fmt: skip


class Line(NamedTuple):
    """A run's value of a metric, where value and interval stand on the metric's scale (0 to 1), and whether it is best."""

    run: int
    score: Score
    at: float | None
    low: float | None
    high: float | None
    best: bool


class Scale(NamedTuple):
    """A metric, its scale from `low` to `high` (None: there is nothing to draw), and a line for each run that has it."""

    metric: str
    low: str
    high: str
    lines: list[Line]


def write_page(facts: Facts, file: Path, quiet: bool = False) -> Path:
    """Write the page to `file`; it is whole or not there."""
    with bar("page", 4, quiet=quiet) as progress:
        first, most = list(first_blocks(facts)), list(many_blocks(facts))
        progress.advance()
        whole = view(facts) | {"first": first, "many": most}
        template = environment().get_template("report.html")
        empty = template.render(whole, sheets=Sheets(1, 1, 1, [], []), block=said)
        progress.advance()
        drawn = sheets(pictures(facts), ROOM - len(empty.encode("utf-8")))
        progress.advance()
        text = template.render(whole, sheets=drawn, block=said)
        with write_aside(file) as aside:
            aside.write_text(text, "utf-8")
        progress.advance()
    return file


def view(facts: Facts) -> dict:
    """What the template itself shows: texts, scores, and which sections there are."""
    told = [(run.name, note) for run in facts.runs for note in run.notes]
    scores = scales(facts)
    return {
        "facts": facts,
        "scores": scores,
        "samples": list(dict.fromkeys((len(p.row), p.part, len(p.class_name), p.name) for p in facts.pools)),
        "marked": any(line.best for one in scores for line in one.lines),
        "notes": [("", note) for note in facts.notes] + told,
        "contents": contents(facts),
        "headline": [first_scores(run) for run in facts.runs],
        "style": asset("report.css"),
        "code": Markup("\n").join(asset(f"{name}.js") for name in SCRIPTS),
    }


def asset(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text("utf-8"))


def contents(facts: Facts) -> dict[str, str]:
    """The sections that have something to show."""
    runs = facts.runs
    there = {
        "scores": any(run.scores for run in runs),
        "galleries": any(some for run in runs for some in run.galleries.values()),
        "compared": any(one.queries for one in facts.compared),
        "map": any(run.maps for run in runs),
        "overlap": facts.overlap is not None,
        "notes": facts.notes or any(run.notes for run in runs),
    }
    return {
        name: text
        for name, text in SECTIONS.items()
        if (there[name] if name in there else any(getattr(run, name) for run in runs))
    }


def first_scores(run: Viewed) -> list[tuple[str, str]]:
    """The deciding metric and two others, their numbers without intervals."""
    order = sorted(run.scores, key=lambda name: name != run.decides)
    return [(name, run.scores[name].text.split(" (")[0]) for name in order[:3]]


def scales(facts: Facts) -> list[Scale]:
    """Every metric that a run has. A run is called best only where its interval lies above those of all others, on the same
    samples, and only of metrics per query: those of a whole set describe."""
    names = dict.fromkeys(name for run in facts.runs for name in run.scores)
    return [scale(name, facts.runs) for name in names]


def scale(metric: str, runs: tuple[Viewed, ...]) -> Scale:
    have = [(number, run.scores[metric]) for number, run in enumerate(runs) if metric in run.scores]
    sure = [score for _, score in have if known(score)]
    if not sure:
        return Scale(metric, "", "", [Line(number, score, None, None, None, False) for number, score in have])
    low = min(score.low for score in sure if score.low is not None)
    high = max(score.high for score in sure if score.high is not None)
    pad = 0.12 * (high - low) or 0.01
    low, high = max(0.0, low - pad) if low >= 0 else low - pad, min(1.0, high + pad) if high <= 1 else high + pad
    same = len({runs[number].pool for number, _ in have}) == 1
    best = clear_best(metric, [score for _, score in have]) if same else None

    def line(number: int, score: Score) -> Line:
        if not known(score):
            return Line(number, score, None, None, None, score is best)
        mean, least, most = ((end - low) / (high - low) for end in score[:3] if end is not None)
        return Line(number, score, mean, least, most, score is best)

    return Scale(metric, f"{100 * low:.0f}", f"{100 * high:.0f} %", [line(*one) for one in have])


def known(score: Score) -> bool:
    return all(value is not None and math.isfinite(value) for value in score[:3])


def clear_best(metric: str, scores: list[Score]) -> Score | None:
    """The one whose interval begins where those of all others have ended."""
    if of_the_set(metric) or len(scores) < 2 or not all(map(known, scores)):
        return None
    first, *others = sorted(scores, key=lambda score: -score.mean)
    ends = [other.high for other in others if other.high is not None]
    return first if first.low is not None and all(first.low > end for end in ends) else None
