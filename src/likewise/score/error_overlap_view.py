"""Overlap of the classes with the most retrieval errors between runs: a heat map and sentences."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from likewise.core.notebook import table, view
from likewise.core.render.figures import COLOURS, INK_COLOUR, SOFT_COLOUR, shorten
from likewise.core.render.gallery import one_line
from likewise.core.render.tables import escape

EMPTY_COLOUR = "#eef0f4"
"""Colour of a cell whose class is not among the most wrong ones of the run."""

MAX_DRAWN_CLASSES = 60
"""Largest number of columns in the figure, those of the most runs; the table holds all."""

MAX_LISTED_CLASSES = 5
"""Number of classes that the terminal lists."""


@dataclass(frozen=True, eq=False)
class Named:
    """The most wrong classes of each run (`heat`), classes of the most runs first, and the overlap between runs.

    `within`, `between`: mean share of common classes of two runs of one method, and of two methods; `chance`: of random runs.
    """

    classes: tuple[str, ...]
    heat: Bool[np.ndarray, "R L"]
    within: float
    between: float
    chance: float


@dataclass(frozen=True, eq=False)
class ErrorOverlap:
    """Several runs, grouped by method; `by`: way to count errors ("count", "rate") -> most wrong classes of each run.

    `k` is the number of most wrong classes per run, `of` the number of test classes.
    """

    runs: tuple[str, ...]
    methods: tuple[str, ...]
    k: int
    of: int
    by: dict[str, Named]
    folder: Path | None = None

    @view
    def _repr_html_(self) -> str:
        lines = [
            (way, named.classes[column], f"{int(named.heat[:, column].sum())} of {len(self.runs)}")
            for way, named in self.by.items()
            for column in range(min(MAX_LISTED_CLASSES, len(named.classes)))
        ]
        notes = [describe_overlap(self, way) for way in self.by]
        return table("most wrong classes", ("by", "class", "runs"), lines, notes)


def describe_overlap(found: ErrorOverlap, way: str) -> str:
    """Return the overlap between runs as one sentence."""
    named = found.by[way]
    pairs = [("one method", named.within), ("different methods", named.between)]
    (kind, share), *others = [(kind, share) for kind, share in pairs if not math.isnan(share)]
    more = "".join(f", two of {kind} {100 * share:.0f} %" for kind, share in others)
    what = f"{100 * share:.0f} % of their {found.k} most wrong classes by {way}"
    return f"two runs of {kind} share {what}{more}; by chance {100 * named.chance:.0f} %"


def show_overlap(found: ErrorOverlap) -> None:
    """Print the most wrong classes of the most runs, and the overlap between runs."""
    console = Console(highlight=False)
    for way, named in found.by.items():
        shown = Table(f"most wrong by {way}", "runs", *map(escape, dict.fromkeys(found.methods)))
        for column in range(min(MAX_LISTED_CLASSES, len(named.classes))):
            counts = [str(int(named.heat[rows, column].sum())) for rows in _groups(found).values()]
            shown.add_row(
                escape(named.classes[column]), f"{int(named.heat[:, column].sum())} of {len(found.runs)}", *counts
            )
        console.print(shown)
    for way in found.by:
        sentence = describe_overlap(found, way)
        console.print(f"[bold]{sentence[0].upper()}{escape(sentence[1:])}.[/]")


def draw_overlap(found: ErrorOverlap) -> Figure:
    """Return a heat map per way to count: rows are runs, grouped by method; columns are classes, those of the most runs first."""
    columns = min(MAX_DRAWN_CLASSES, max(len(named.classes) for named in found.by.values()))
    rows, groups = len(found.runs), len(_groups(found))
    panel = 0.24 * rows + 0.12 * groups + 2.6  # with room for vertical class names
    figure = Figure(
        figsize=(max(9.0, 4.2 + 0.24 * columns), 0.5 + panel * len(found.by)), facecolor="white", layout="constrained"
    )
    figure.get_layout_engine().set(hspace=0.06)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    for axes, way in zip(figure.subplots(len(found.by), 1, squeeze=False)[:, 0], found.by):
        draw_named(axes, found, way, columns)
    figure.supxlabel(
        f"A row is a run, a filled cell a class among its {found.k} most wrong of {found.of} test classes; the number "
        "above a column counts its filled cells.", x=0.012, ha="left", fontsize=8, color=SOFT_COLOUR,
    )  # fmt: skip
    return figure


def draw_named(axes: Axes, found: ErrorOverlap, way: str, columns: int) -> None:
    """Draw one panel. Methods are separated by a gap and have different colours."""
    named, shown = found.by[way], min(columns, len(found.by[way].classes))
    place, top = {}, 0.0
    for number, (method, rows) in enumerate(_groups(found).items()):
        colour = COLOURS[number % len(COLOURS)]
        for row in rows:
            place[row], top = top, top + 1
            fill = [colour if hit else EMPTY_COLOUR for hit in named.heat[row, :shown]]
            axes.barh([place[row]] * shown, 0.92, left=np.arange(shown) - 0.46, height=0.88, color=fill, lw=0)
        middle = (place[rows[0]] + place[rows[-1]]) / 2
        lines = textwrap.wrap(method, 30, max_lines=max(1, int(1.6 * len(rows))), placeholder="…")
        axes.text(
            columns - 0.2, middle, "\n".join(lines), va="center", fontsize=9, color=colour, fontweight="bold",
            parse_math=False,
        )  # fmt: skip
        top += 0.5
    for column in range(shown):
        count = int(named.heat[:, column].sum())
        axes.text(column, -0.75, str(count), ha="center", fontsize=7, color=INK_COLOUR if count > 1 else SOFT_COLOUR)
    runs = _tails(found.runs)
    axes.set_yticks(list(place.values()), [shorten(runs[row], 28) for row in place], fontsize=8, parse_math=False)
    labels = [shorten(name, 26) for name in named.classes[:shown]]
    axes.set_xticks(range(shown), labels, rotation=90, fontsize=8, parse_math=False)
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(top - 1, -1.2)
    axes.tick_params(length=0, colors=INK_COLOUR)
    for side in axes.spines.values():
        side.set_visible(False)
    left = len(named.classes) - shown
    more = f" ({left} more classes, of fewer runs, are in overlap.csv)" if left else ""
    title = describe_overlap(found, way)
    title = textwrap.fill(one_line(title[0].upper() + title[1:] + more), max(80, int(2.9 * columns)))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK_COLOUR, pad=8, parse_math=False)


def _groups(found: ErrorOverlap) -> dict[str, list[int]]:
    """Return the rows of every method, in order of appearance."""
    groups: dict[str, list[int]] = {}
    for row, method in enumerate(found.methods):
        groups.setdefault(method, []).append(row)
    return groups


def _tails(runs: tuple[str, ...]) -> list[str]:
    """Return the names of the runs without their common parent folder."""
    parts = [Path(run).parts for run in runs]
    shared = next((n for n, level in enumerate(zip(*parts)) if len(set(level)) > 1), 0)
    return [str(Path(*own[shared:])) for own in parts]
