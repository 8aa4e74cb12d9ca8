"""A comparison of two runs: tables for the terminal, and a figure of the differences with their intervals."""

from __future__ import annotations

import textwrap
from pathlib import PurePath

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from likewise.core.errors import print_text
from likewise.core.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, WORSE_COLOUR
from likewise.core.render.gallery import one_line
from likewise.core.render.tables import escape
from likewise.core.settings import Compare

MAX_NAMED_CLASSES = 40
"""Largest number of classes that the figure names."""

MAX_LISTED_ITEMS = 3
"""Classes and queries that the terminal lists, for gains and for losses."""

INTERVAL_SCOPE = (
    "Intervals are over the test queries and classes of these two networks. Each network is one training: the intervals do not "
    "cover the variation between seeds (`likewise bench` with several seeds measures it)."
)
"""Sentence below a comparison: what the intervals cover."""


def conclusion(result: dict) -> str:
    """Return the conclusion of a comparison as a sentence without its full stop."""
    sentence = result["same"] or result["metrics"][result["decides"]]["conclusion"]
    return sentence[0].upper() + sentence[1:]


def headline(result: dict) -> str:
    """Return the scores of A and B on the data of `--on` in one line, R@1 first; "" for a comparison of stored scores."""
    if "on" not in result:
        return ""
    on, shown = result["on"], dict.fromkeys(n for n in ("R@1", result["decides"]) if n in result["metrics"])
    values = ", ".join(
        f"{n} {100 * result['metrics'][n]['a']:.1f} -> {100 * result['metrics'][n]['b']:.1f}" for n in shown
    )
    return f"{values} on the same {result['queries']:,} {on['noun']}, by the labels of {PurePath(on['data']).name or on['data']}"


def show_comparison(result: dict, config: Compare) -> None:
    """Print the differences, the classes and queries that changed most, the conclusion, and the files that were written."""
    console, name = Console(highlight=False), result["decides"]
    console.print(f"A  {escape(result['a'])}\nB  {escape(result['b'])}")
    words = [f"95 % over {result[unit]} {unit}" for unit in ("classes", "queries")]
    table = Table("points", "A", "B", "B - A", *words, f"p over {result['over']}")
    moved = Table("", "classes better", "equal", "worse", "queries better", "worse")
    for metric, about in result["metrics"].items():
        table.add_row(
            metric, *(f"{100 * about[side]:.2f}" for side in "ab"), f"{100 * about['difference']:+.2f}",
            _span(about["over_classes"]), _span(about["over_queries"]),
            _p(about[f"over_{result['over']}"]),
        )  # fmt: skip
        counts = [about["classes"][word] for word in ("better", "equal", "worse")]
        kinds = ("fixed", "broken") if about["right_or_wrong"] else ("", "")
        counts += [f"{len(about[word])} {kind}".strip() for word, kind in zip(("better", "worse"), kinds)]
        moved.add_row(metric, *map(str, counts))
    console.print(table, moved)
    show_extremes(console, name, result["metrics"][name])
    if "on" in result:
        console.print(f"[bold]{escape(headline(result))}.[/]")
    console.print(f"[bold]{escape(conclusion(result))}.[/]")
    for line in no_interval_lines(result):
        console.print(escape(line), style="dim")
    if "on" in result:
        sentence = result["on"]["sentence"]
        console.print(f"{escape(sentence[0].upper() + sentence[1:])}.")
    console.print(f"Queries without relevant rows, left out: {result['unscored']}. {INTERVAL_SCOPE}", style="dim")
    for what, file in (("figure", config.out), ("queries that changed", config.csv)):
        if file:
            print_text(f"{what}: {file}")


def no_interval_lines(result: dict) -> list[str]:
    """Return one line for each reason for no interval over classes or over queries, with its metrics."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for name, about in result["metrics"].items():
        for unit in ("classes", "queries"):
            if reason := about[f"over_{unit}"]["reason"]:
                metrics.setdefault((unit, reason), []).append(name)
    return [f"No interval over {unit} for {', '.join(names)}: {reason}." for (unit, reason), names in metrics.items()]


def show_extremes(console: Console, name: str, about: dict) -> None:
    """Print the classes and queries with the largest gains and losses. A class without an interval is left out."""
    classes = [c for c in about["classes"]["each"] if c["low"] is not None]
    gains = [c for c in classes if c["difference"] > 0][:MAX_LISTED_ITEMS]
    losses = [c for c in classes if c["difference"] < 0][-MAX_LISTED_ITEMS:]
    table = Table(f"{name}: class", "queries", "B - A", "95 % over its queries")
    for c in gains + losses:
        table.add_row(escape(c["class"]), str(c["queries"]), f"{100 * c['difference']:+.2f}", _span(c))
    queries, moved = (
        Table(f"{name}: query", "class", "A", "B"),
        about["better"][:MAX_LISTED_ITEMS] + about["worse"][:MAX_LISTED_ITEMS],
    )
    if any("path" in q for q in moved):
        queries.add_column("path", overflow="fold")
    for q in moved:
        path = [escape(q["path"])] if "path" in q else []
        queries.add_row(f"row {q['row']}", escape(q["class"]), *(f"{100 * q[side]:.1f}" for side in "ab"), *path)
    for filled in (t for t in (table, queries) if t.row_count):
        console.print(filled)


def _span(ends: dict) -> str:
    if ends["low"] is None:
        return "none"
    return f"{100 * ends['low']:+.2f} to {100 * ends['high']:+.2f}"


def _p(ends: dict) -> str:
    return "" if ends["p"] is None else "< 0.001" if ends["p"] < 0.001 else f"{ends['p']:.3f}"


def draw_comparison(result: dict) -> Figure:
    """Return a figure: left, the difference of every metric with both intervals; right, of every class for the main metric."""
    main = result["metrics"][result["decides"]]
    classes = main["classes"]["each"]
    lines = len(classes) if len(classes) <= MAX_NAMED_CLASSES else MAX_NAMED_CLASSES // 2
    height = max(3.6, 1.5 + 0.19 * lines, 1.7 + 0.6 * len(result["metrics"]))
    figure = Figure(figsize=(11, height), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    draw_metrics(left, result)
    draw_classes(right, classes, f"{result['decides']} by class, B \N{MINUS SIGN} A")
    figure.suptitle(
        textwrap.fill(one_line(conclusion(result)), 110), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK_COLOUR,
        parse_math=False,
    )  # fmt: skip
    figure.supxlabel(
        f"A  {_short(result['a'])}      B  {_short(result['b'])}      a point is a hundredth of the metric's range",
        x=0.012, ha="left", fontsize=8, color=SOFT_COLOUR, parse_math=False,
    )  # fmt: skip
    return figure


def draw_metrics(axes: Axes, result: dict) -> None:
    looks = {"classes": (INK_COLOUR, "o", 2.2, -0.11), "queries": (SOFT_COLOUR, "s", 1.4, 0.11)}
    for unit, (colour, mark, width, shift) in looks.items():
        label = f"over {result[unit]} {unit}"
        for place, about in enumerate(result["metrics"].values()):
            ends, mean = about[f"over_{unit}"], 100 * about["difference"]
            if ends["low"] is not None:
                axes.plot([100 * ends["low"], 100 * ends["high"]], [place + shift] * 2, color=colour, lw=width)
            axes.plot(mean, place + shift, mark, color=colour, ms=5, label=None if place else label)
    _tidy(axes, "difference, B \N{MINUS SIGN} A, with 95 % intervals", dict(enumerate(result["metrics"])))
    axes.set_ylim(len(result["metrics"]) - 0.4, -0.9)  # room for the legend
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK_COLOUR, loc="upper left", ncols=2, handletextpad=0.2)


def draw_classes(axes: Axes, classes: list[dict], title: str) -> None:
    """Draw the difference of every class: few classes with names and intervals, many as an area with its two ends named."""
    value = [100 * c["difference"] for c in classes]
    places, last = range(len(classes)), len(classes) - 1
    if last < MAX_NAMED_CLASSES:
        named, title = places, f"{title}, with 95 % intervals"
        colours = [BETTER_COLOUR if v > 0 else WORSE_COLOUR if v < 0 else SOFT_COLOUR for v in value]
        known = [(p, 100 * c["low"], 100 * c["high"]) for p, c in enumerate(classes) if c["low"] is not None]
        if known:
            axes.hlines(*zip(*known), colors=FAINT_COLOUR, lw=3.5)
        axes.scatter(value, places, s=22, c=colours, zorder=3)
        axes.hlines(places, 0, value, colors=colours, lw=1.4)
    else:
        named = (0, last)
        for colour, side in ((BETTER_COLOUR, max), (WORSE_COLOUR, min)):
            axes.fill_betweenx(places, 0, [side(v, 0) for v in value], step="mid", color=colour, lw=0)
    _tidy(axes, title, {place: _short(classes[place]["class"], 26) for place in named})
    axes.set_ylim(len(classes) - 0.3, -0.7)


def _tidy(axes: Axes, title: str, names: dict[int, str]) -> None:
    axes.axvline(0, color=INK_COLOUR, lw=0.8, zorder=0)
    axes.set_title(title, loc="left", fontsize=10, color=INK_COLOUR, parse_math=False)
    axes.set_xlabel(
        "points   (\N{LEFTWARDS ARROW} A better    B better \N{RIGHTWARDS ARROW})", fontsize=9, color=INK_COLOUR
    )
    axes.set_yticks(
        list(names), names.values(), fontsize=10 if len(names) < 8 else 8, color=INK_COLOUR, parse_math=False
    )
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.tick_params(length=0, colors=INK_COLOUR)
    axes.margins(x=0.06)
    axes.grid(axis="x", color=FAINT_COLOUR, lw=0.7)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _short(text: str, most: int = 44) -> str:
    text = one_line(text)
    return text if len(text) <= most else "…" + text[1 - most :]
