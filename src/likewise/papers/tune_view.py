"""Results of a hyperparameter search: a figure of all trials, and the best settings on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from likewise.core.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, WORSE_COLOUR, shorten
from likewise.core.settings import Tune
from likewise.papers.benchmark_formats import show_benchmark

SOFT_COLOUR, RULE_COLOUR, LINE_COLOUR, FAILED_COLOUR = "#6b7585", FAINT_COLOUR, BETTER_COLOUR, WORSE_COLOUR
"""Colours of axes, rules, trials and failed trials."""


class SearchDimension(NamedTuple):
    """One dimension of the search: choices, or a range from `low` to `high`."""

    name: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False


class SearchTrial(NamedTuple):
    """A trial: its value if it is complete, its state (complete, pruned, failed), and its settings (`at`)."""

    number: int
    value: float | None
    state: str
    at: dict[str, object]


def draw_search(
    file: Path, dials: Sequence[SearchDimension], shots: Sequence[SearchTrial], label: str, title: str
) -> None:
    """Write the figure (.png): history above, parallel coordinates below."""
    with matplotlib.rc_context(
        {"font.family": "DejaVu Sans", "font.size": 9, "text.color": INK_COLOUR, "axes.edgecolor": RULE_COLOUR}
    ):
        width = max(8.0, 1.7 * (len(dials) + 1))
        figure = Figure(figsize=(width, 7.6), dpi=150, facecolor="white")
        above, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": [1, 1.35], "hspace": 0.42})
        figure.subplots_adjust(left=0.85 / width, right=1 - 0.75 / width, top=0.89, bottom=0.05)
        figure.suptitle(
            shorten(title, int(width * 10)), x=0.25 / width, y=0.975, ha="left", fontsize=12, fontweight="bold"
        )
        draw_history(above, shots, label)
        draw_lines(below, dials, [s for s in shots if s.state == "complete"])
        figure.savefig(file, format="png")


def draw_history(axes, shots: Sequence[SearchTrial], label: str) -> None:
    done = sorted(s for s in shots if s.state == "complete")
    x, y = [s.number for s in done], np.array([s.value for s in done], float)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=RULE_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT_COLOUR, length=3)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial", color=SOFT_COLOUR)
    axes.set_ylabel(label, color=SOFT_COLOUR)
    if done:
        axes.step(x, np.maximum.accumulate(y), where="post", color=LINE_COLOUR, linewidth=1.6, label="best so far")
        axes.scatter(x, y, s=20, color=LINE_COLOUR, alpha=0.55, linewidths=0, label="trial")
        best = int(y.argmax())
        axes.annotate(
            f"{y[best]:.4f}", (x[best], y[best]), (0, 6), textcoords="offset points", ha="center", color=LINE_COLOUR,
            fontweight="bold",
        )  # fmt: skip
        axes.margins(y=0.15)
    numbers = [s.number for s in shots]
    room = max(0.5, 0.04 * (max(numbers, default=0) - min(numbers, default=0)))
    axes.set_xlim(min(numbers, default=0) - room, max(numbers, default=0) + room)
    foot = axes.get_xaxis_transform()  # trials without a value are drawn at the bottom
    for state, marker, colour in (("pruned", "|", SOFT_COLOUR), ("failed", "x", FAILED_COLOUR)):
        numbers = [s.number for s in shots if s.state == state]
        if numbers:
            at = [0.03] * len(numbers)
            axes.scatter(numbers, at, marker=marker, s=26, color=colour, linewidths=1.3, transform=foot, label=state)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, borderaxespad=0, handletextpad=0.4,
        columnspacing=1.4,
    )  # fmt: skip


def draw_lines(axes, dials: Sequence[SearchDimension], shots: Sequence[SearchTrial]) -> None:
    """Draw one line per trial through its settings to its value; better trials are darker and in front."""
    axes.set(xlim=(0, len(dials)), ylim=(0, 1))
    axes.axis("off")
    values = [s.value for s in shots if s.value is not None] or [0.0]
    scale = SearchDimension("value", (), min(values), max(values) if max(values) > min(values) else min(values) + 1e-6)
    for place, dial in enumerate([*dials, scale]):
        last = place == len(dials)
        axes.plot(
            [place, place],
            [0, 1],
            color=LINE_COLOUR if last else SOFT_COLOUR,
            linewidth=1.6 if last else 0.9,
            zorder=3,
            clip_on=False,
        )
        axes.text(
            place,
            1.06 + 0.085 * (place % 2),
            shorten(dial.name, 32),
            ha="center",
            va="bottom",
            fontweight="bold",
            color=INK_COLOUR,
        )
        axes.plot(
            [place, place], [1, 1.05 + 0.085 * (place % 2)], color=RULE_COLOUR, linewidth=0.8, zorder=1, clip_on=False
        )
        for height, text in ticks(dial):
            axes.text(
                place + 0.03, height, text, ha="left", va="center", fontsize=7.5, color=INK_COLOUR, zorder=5,
                bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
    shots = sorted(shots, key=lambda s: (s.value, -s.number))  # ties: the first trial is the best
    heights = [[*(where(d, s.at[d.name]) for d in dials), where(scale, s.value)] for s in shots]
    lines = [list(enumerate(h)) for h in heights]
    shade = Normalize(scale.low, scale.high)
    shades = [0.12 + 0.88 * float(shade(s.value)) for s in shots if s.value is not None]
    colours = matplotlib.colormaps["viridis_r"](shades)  # without the palest colours
    widths = [1.0] * len(lines)
    if lines:
        widths[-1] = 2.6
        colours[:-1, 3] = 0.6
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, zorder=2, clip_on=False))


def where(dial: SearchDimension, value: Any) -> float:
    """Return the height of a value on its axis, 0 to 1."""
    if dial.choices:
        return (dial.choices.index(value) + 0.5) / len(dial.choices)
    low, high, at = (math.log(v) if dial.log else float(v) for v in (dial.low, dial.high, value))
    return (at - low) / (high - low)


def ticks(dial: SearchDimension) -> list[tuple[float, str]]:
    """Return heights and texts of ticks: every choice; powers of ten for a log range; otherwise five even steps."""
    if dial.choices:
        return [(where(dial, choice), shorten(choice, 18)) for choice in dial.choices]
    powers = (
        range(math.ceil(math.log10(dial.low) - 1e-9), math.floor(math.log10(dial.high) + 1e-9) + 1) if dial.log else ()
    )
    if len(powers) >= 2:
        marks = [10.0**p for p in powers][:: math.ceil(len(powers) / 6)]
        return [(where(dial, mark), f"{mark:g}") for mark in marks]
    even = [i / 4 for i in range(5)]
    low, high = (math.log(v) if dial.log else v for v in (dial.low, dial.high))
    return [(h, f"{math.exp(low + h * (high - low)) if dial.log else low + h * (high - low):.3g}") for h in even]


def show_tuning(found, config: Tune) -> None:
    """Print the best settings of a search, how its trials ended, and the table of the final runs if there is one.

    Args:
        found: a `likewise.papers.tune.TuneResult`.
        config: with `quiet`, nothing is printed.
    """
    if config.quiet:
        return
    best, count = found.about["best"], found.about["count"]
    table = Table("", f"best, trial {best['number']}")
    for name, value in best["values"].items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    table.add_row(f"val {found.about['select']}", f"{100 * best['value']:.1f} %")
    Console().print(table)
    print("trials: " + ", ".join(f"{number} {state}" for state, number in count.items() if number))
    for reason in sorted({t["reason"] for t in found.about["trials"] if t["reason"]})[:5]:
        print(f"  failed: {reason}")
    if found.final:
        show_benchmark(found.final)
    print(f"settings: {found.folder / 'best.toml'}\nfigure:   {found.folder / 'tune.png'}")
