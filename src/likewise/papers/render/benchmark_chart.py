"""The chart above a benchmark table: the main metric of every method, as bars or as lines over a numeric axis."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from likewise.papers.render.benchmark_table import BEST_EPOCH, BenchmarkTable, Entry, label

MAX_COLOURED_LINES = 6
"""Methods with a colour of their own in a line chart, the best first; the others are grey."""
MAX_BAR_PANELS = 4
"""Columns that are drawn as bars; further ones are in the table only."""
CHART_WIDTH, CHART_HEIGHT, LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 420, 260, 40, 12, 10, 34
"""Size of a line chart and its margins, in units of its view box."""


class Mark(NamedTuple):
    """A method in a chart: its mean, the ends of its interval or range (the mean for one seed), and the published value."""

    name: str
    mean: float
    low: float
    high: float
    printed: float | None
    text: str


class Bars(NamedTuple):
    """The methods of one column, the best first, and the values at both ends of the scale."""

    title: str
    marks: list[Mark]
    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value on the scale, from 0 to 100."""
        return 100 * (value - self.low) / (self.high - self.low)


class Line(NamedTuple):
    """A method in a line chart: its points in units of the view box, and the number of its colour; -1: grey."""

    name: str
    points: list[tuple[float, float]]
    colour: int
    text: str


class Lines(NamedTuple):
    """One line per method over a number, with (place, text) of the ticks."""

    title: str
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


class Chart(NamedTuple):
    """What the chart shows: the metric, line charts or bars, and a sentence on what is drawn."""

    metric: str
    lines: list[Lines]
    bars: list[Bars]
    note: str


def chart_of(sheet: BenchmarkTable) -> Chart | None:
    """Return the chart of the main metric: of the tests, otherwise the first one; None without two methods that have it."""
    metric = sheet.contest.metric if sheet.contest else next((e.column[-1] for e in sheet.entries), "")
    known = [e for e in sheet.entries if e.column[-1] == metric and e.ours and not math.isnan(e.ours.mean)]
    if len({e.row for e in known}) < 2:
        return None
    settings = list(dict.fromkeys(e.column[:-1] for e in known))
    colours = colours_of(known)
    lines = [line_chart(title, places, known, colours) for title, places in numeric_series(settings).items()]
    bars = [] if lines else [bar_chart(setting, known) for setting in settings[:MAX_BAR_PANELS]]
    return Chart(metric.removesuffix(BEST_EPOCH), lines, bars, note_of(known, bool(lines)))


def note_of(known: Sequence[Entry], as_lines: bool) -> str:
    """Return what the marks of the chart are."""
    most = max(len(e.values) for e in known)
    if as_lines:
        return f"{'Mean over seeds' if most > 1 else 'One seed'}, against the number at the end of the column's name."
    spread = {1: "one seed"}.get(most, "the thin line is the 95 % interval over seeds; with two seeds, their range")
    printed = " The upright line is the published number." if any(e.printed for e in known) else ""
    printed = " The upright line is the published number." if any(e.printed for e in known) else ""
    return f"The bar ends at the mean; {spread}.{printed}"


def ends_of(entry: Entry) -> tuple[float, float]:
    """Return the ends of the interval over seeds; of the seeds themselves where there is no interval."""
    found = entry.ours
    assert found is not None
    if not math.isnan(found.low):
        return found.low, found.high
    values = [entry.scale * value for value in entry.values]
    return min(values), max(values)


def bar_chart(setting: tuple[str, ...], known: Sequence[Entry]) -> Bars:
    """Return the bars of one column. The scale begins at 0, unless a value is negative."""
    marks = []
    for e in (e for e in known if e.column[:-1] == setting):
        assert e.ours is not None
        printed = e.printed.mean if e.printed and not math.isnan(e.printed.mean) else None
        marks.append(Mark(label(e.row), e.ours.mean, *ends_of(e), printed, value_text(e, e.ours.mean)))
    marks.sort(key=lambda mark: -mark.mean)
    every = [v for mark in marks for v in (mark.mean, mark.printed or 0.0)]
    top = max(*every, *(min(mark.high, 1.15 * max(every)) for mark in marks))
    low = min(0.0, *every)
    return Bars(label(setting), marks, low, top if top > low else low + 1)


def value_text(entry: Entry, value: float) -> str:
    """Return a value with the digits of its metric."""
    return f"{value:.{1 if entry.scale == 100 else 4}f}"


def numeric_series(settings: Sequence[tuple[str, ...]]) -> dict[str, dict[tuple[str, ...], float]]:
    """Return name -> column -> number, for columns that differ in a number at their end, such as "uniform 0.5".

    A column "none" is 0 in every series. A series has three numbers or more; other columns are in none.
    """
    series: dict[str, dict[tuple[str, ...], float]] = {}
    zero = [one for one in settings if label(one) in ("none", "0")]
    for setting in (one for one in settings if one not in zero):
        found = re.fullmatch(r"(.*?)\s*(\d+(?:\.\d+)?)", label(setting))
        if found is None:
            continue
        series.setdefault(found[1], dict.fromkeys(zero, 0.0))[setting] = float(found[2])
    return {name: places for name, places in series.items() if len(set(places.values())) > 2}


def colours_of(known: Sequence[Entry]) -> dict[str, int]:
    """Return method -> number of its colour, the same in every chart: the best by their mean over all columns have one."""
    values: dict[str, list[float]] = {}
    for e in known:
        assert e.ours is not None
        values.setdefault(label(e.row), []).append(e.ours.mean)
    order = sorted(values, key=lambda name: -sum(values[name]) / len(values[name]))
    return {name: place if place < MAX_COLOURED_LINES else -1 for place, name in enumerate(order)}


def line_chart(
    title: str, places: dict[tuple[str, ...], float], known: Sequence[Entry], colours: dict[str, int]
) -> Lines:
    """Return the line chart of a series: one line per method, the best first."""
    values: dict[str, dict[float, float]] = {}
    first = known[0]  # all have one metric
    for e in (e for e in known if e.column[:-1] in places):
        assert e.ours is not None
        values.setdefault(label(e.row), {})[places[e.column[:-1]]] = e.ours.mean
    order = sorted(values, key=lambda name: -sum(values[name].values()) / len(values[name]))
    x, y = sorted(set(places.values())), [v for of in values.values() for v in of.values()]
    low, high = min(y), max(y)
    room = 0.06 * (high - low) or 1.0
    low, high = max(0.0, low - room) if low >= 0 else low - room, high + room

    def to_x(value: float) -> float:
        return round(LEFT_MARGIN + (value - x[0]) / (x[-1] - x[0]) * (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN), 1)

    def to_y(value: float) -> float:
        return round(
            CHART_HEIGHT - BOTTOM_MARGIN - (value - low) / (high - low) * (CHART_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN), 1
        )

    lines = []
    for name in order:
        points = sorted(values[name].items())
        ends = f"{value_text(first, points[0][1])} to {value_text(first, points[-1][1])}"
        lines.append(Line(name, [(to_x(at), to_y(value)) for at, value in points], colours[name], ends))
    y_ticks = [(to_y(tick), f"{tick:g}") for tick in round_numbers(low, high)]
    return Lines(title, lines, [(to_x(at), f"{at:g}") for at in x], y_ticks)


def round_numbers(low: float, high: float, many: int = 5) -> list[float]:
    """Return about `many` round numbers between two values."""
    rough = (high - low) / many
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= 0.99 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]
