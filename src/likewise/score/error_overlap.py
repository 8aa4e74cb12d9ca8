"""overlap: the test classes with the most retrieval errors of several evaluated runs, and the share that runs have in common."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor

from likewise.core.argument_checks import misfit
from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, make_folder, write_csv, write_json
from likewise.core.notebook import table, view
from likewise.core.render.figures import COLOURS, INK_COLOUR, SOFT_COLOUR, save_figure, shorten
from likewise.core.render.gallery import one_line
from likewise.core.render.tables import escape
from likewise.core.settings import check
from likewise.core.settings.label_settings import Audit
from likewise.core.settings.spec import brief
from likewise.data.label_sets import split_labels
from likewise.runs.folder import Run
from likewise.runs.scores import PER_QUERY, read_per_query


def most_wrong(
    wrong: Bool[Tensor, "N"], y: Int[Tensor, "N"], k: int = 10, by: str = "count", least: int = 2
) -> Int[Tensor, "k"]:
    """Return the k classes with the most wrong samples, worst first; fewer if fewer classes have any.

    Ties are ordered by the other criterion, then by label.

    Args:
        by: "count", as in the paper, which favours large classes; or "rate", the share of the class that is wrong.
        least: with "rate", smallest size of a class: in a class of one sample, one error would be a rate of 1.
    """
    label, own, size = y.unique(return_inverse=True, return_counts=True)
    count = torch.bincount(own[wrong], minlength=len(label))
    rate = count.double() / size
    first, second = (count, rate) if by == "count" else (rate, count)
    order = second.argsort(descending=True, stable=True)
    order = order[first[order].argsort(descending=True, stable=True)]
    named = (count > 0) & ((size >= least) | (by == "count"))
    return label[order[named[order]][:k]]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Overlap of the worst classes of R runs.

    Attributes:
        matrix: share of the worst classes that two runs have in common.
        within, between: its mean over pairs of runs of the same method, and of different methods; NaN if there are none.
        chance: the mean for classes drawn at random.
        label: the L classes that are among the worst of any run.
        heat: mask of the classes in `label` that are among the worst of each run.
    """

    matrix: Float[Tensor, "R R"]
    within: float
    between: float
    chance: float
    label: Int[Tensor, "L"]
    heat: Bool[Tensor, "R L"]


def error_overlap(worst: Sequence[Int[Tensor, "_"]], methods: Sequence[str], classes: int) -> Overlap:
    """Return the overlap of the worst classes for every pair of runs.

    Formula: 2 |A and B| / (|A| + |B|), which is |A and B| / k where both name k classes;
        by chance 2 |A| |B| / (|A| + |B|) / classes

    Args:
        worst: the worst classes of every run, without repetition.
        methods: the training method of every run.
        classes: number of test classes.
    """
    label = torch.cat(list(worst)).unique()
    heat = torch.stack([torch.isin(label, some) for some in worst])
    size = heat.sum(1).double()
    both = size[:, None] + size
    matrix = 2 * (heat.double() @ heat.double().T) / both
    chance = 2 * size[:, None] * size / both / classes
    number = {name: i for i, name in enumerate(dict.fromkeys(methods))}
    method = torch.tensor([number[name] for name in methods], device=label.device)
    same, pair = method[:, None] == method, torch.ones_like(matrix, dtype=torch.bool).triu(1)
    means = (matrix[pair & same], matrix[pair & ~same], chance[pair])
    return Overlap(matrix, *(float(values.mean()) for values in means), label, heat)  # pyright: ignore[reportCallIssue]


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


ERROR_METRIC = "R@1"
"""A query with the value 0 of this metric is a retrieval error."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunErrors:
    """The retrieval errors of one run, by class. Queries without a relevant gallery row are not included.

    If samples have several labels, the classes are the single labels, and a query counts for each of its labels.
    """

    run: str
    method: str
    names: tuple[str, ...]
    label: Int[np.ndarray, "Q"]  # into names
    value: Float[np.ndarray, "Q"]
    relevance: str = "same class"  # which gallery rows are right

    @property
    def size(self) -> Int[np.ndarray, "C"]:
        return np.bincount(self.label, minlength=len(self.names))

    @property
    def wrong(self) -> Int[np.ndarray, "C"]:
        return np.bincount(self.label[self.value == 0], minlength=len(self.names))


def overlap(config: Audit, say=print) -> ErrorOverlap:
    """Return the worst classes of each run, by count and by rate of errors, and their overlap between runs."""
    check(config)
    runs = [read_errors(target) for target in config.targets]
    if len(runs) < 2:
        raise LikewiseError(f"overlap: two runs or more must be given, got {len(runs)}; give more runs")
    check_same_queries(runs, config)
    rank = {method: place for place, method in enumerate(dict.fromkeys(one.method for one in runs))}
    runs = sorted(runs, key=lambda one: rank[one.method])
    out = Path(config.out or "overlap").expanduser()
    found = ErrorOverlap(
        tuple(one.run for one in runs), tuple(one.method for one in runs), config.k, len(runs[0].names),
        {by: named_by(by, runs, config.k) for by in ("count", "rate")}, out,
    )  # fmt: skip
    write(out, found, runs)
    say(f"overlap.json, overlap.csv and overlap.png: {out}")
    return found


def read_errors(target: str) -> RunErrors:
    """Return the retrieval errors of an evaluated run, and its training method."""
    run = Run(target)
    settings = {"loss": None, "confidence": None, "terms": []} | run.about["config"]
    if (wrong := misfit(settings, {"loss": str, "confidence": str | None, "terms": list[str]})) is not None:
        raise LikewiseError(
            f"overlap: '{target}' must name its {wrong}, got {settings[wrong]!r}; restore its config.json"
        )
    file = run.path / PER_QUERY
    if not file.exists():
        raise LikewiseError(f"overlap: '{target}' has no per_query.parquet; run `likewise evaluate {target}` first")
    queries = read_per_query(file, "overlap")
    if ERROR_METRIC not in queries.each:
        raise LikewiseError(
            f"overlap: '{target}' must have been evaluated with {ERROR_METRIC}, got {', '.join(queries.each)}; "
            f"run `likewise evaluate {target} --metrics {ERROR_METRIC}`"
        )
    scored = ~np.isnan(queries.each[ERROR_METRIC])
    value, given = queries.each[ERROR_METRIC][scored], queries.class_name[scored].astype(str)
    units = (queries.relevance or {}).get("units", "classes")
    if units == "label sets":  # a query counts for each of its labels
        sets = [split_labels(name) for name in given.tolist()]
        value, given = np.repeat(value, [len(one) for one in sets]), np.array([name for one in sets for name in one])
    names, label = np.unique(given, return_inverse=True)
    components = [settings["loss"], settings["confidence"], *settings["terms"]]
    method = " + ".join(brief(component) for component in components if component)
    return RunErrors(target, method, tuple(names.tolist()), label, value, queries.meaning)


def check_same_queries(runs: list[RunErrors], config: Audit) -> None:
    """Raise unless all runs have the same test classes and queries, there are `k` classes, and every run has errors."""
    first = runs[0]
    if len({Path(one.run).expanduser().resolve() for one in runs}) < len(runs):
        raise LikewiseError(
            f"overlap: every run must be given once, got {', '.join(config.targets)}; drop the repeated ones"
        )
    for one in runs[1:]:
        if one.relevance != first.relevance:
            raise LikewiseError(
                f"overlap: the same rows must be right in all runs, but '{one.run}' was scored with \"{one.relevance}\" and "
                f"'{first.run}' with \"{first.relevance}\"; evaluate all with the same relevance"
            )
        differing = sorted(set(one.names) ^ set(first.names))
        if differing:
            raise LikewiseError(
                f"overlap: all runs must have the same test classes, but '{one.run}' and '{first.run}' differ in "
                f"{len(differing)} (first: '{differing[0]}'); compare runs on the same data and protocol"
            )
        if (one.size != first.size).any():
            c = int(np.flatnonzero(one.size != first.size)[0])
            raise LikewiseError(
                f"overlap: all runs must have the same test queries, but '{one.run}' has {one.size[c]} of class "
                f"'{first.names[c]}' where '{first.run}' has {first.size[c]}; compare runs on the same data and protocol"
            )
    if not 1 <= config.k <= len(first.names):
        raise LikewiseError(f"overlap: k must be between 1 and the {len(first.names)} test classes, got k={config.k}")
    if perfect := [one.run for one in runs if not one.wrong.any()]:
        raise LikewiseError(
            f"overlap: every run must have errors, but '{perfect[0]}' has none at {ERROR_METRIC}; drop this run"
        )


def named_by(by: str, runs: list[RunErrors], k: int) -> Named:
    """Return the worst classes of all runs: first those of most runs; ties by the number of errors."""
    worst = [most_wrong(torch.from_numpy(one.value == 0), torch.from_numpy(one.label), k, by) for one in runs]
    if without := [one.run for one, some in zip(runs, worst) if not len(some)]:
        raise LikewiseError(
            f"overlap: a run must have errors in a class of two queries or more to be compared by rate, but '{without[0]}' has "
            "none; drop this run"
        )
    found = error_overlap(worst, [one.method for one in runs], len(runs[0].names))
    label, heat = found.label.numpy(), found.heat.numpy()
    wrong = np.sum([one.wrong for one in runs], 0)[label]
    order = np.lexsort((label, -wrong, -heat.sum(0)))
    classes = tuple(runs[0].names[c] for c in label[order])
    return Named(classes, heat[:, order], found.within, found.between, found.chance)


def write(out: Path, found: ErrorOverlap, runs: list[RunErrors]) -> None:
    """Write overlap.json, overlap.csv (every class of every run) and overlap.png."""
    make_folder(out, "overlap")
    means = ("within", "between", "chance")
    about = {
        "runs": [{"run": run, "method": method} for run, method in zip(found.runs, found.methods)],
        "k": found.k, "classes": found.of, "metric": ERROR_METRIC,
        **{
            by: {
                **{m: None if np.isnan(v := getattr(named, m)) else v for m in means},
                "named": {c: int(n) for c, n in zip(named.classes, named.heat.sum(0))},
            }
            for by, named in found.by.items()
        },
    }  # fmt: skip
    write_json(out / "overlap.json", about)
    lines = []
    for row, one in enumerate(runs):
        ways = {by: {c for c, hit in zip(n.classes, n.heat[row]) if hit} for by, n in found.by.items()}
        for name, wrong, size in zip(one.names, one.wrong.tolist(), one.size.tolist()):
            named = " ".join(by for by, some in ways.items() if name in some)
            lines.append((one.run, one.method, name, wrong, size, f"{wrong / size:.4f}", named))
    write_csv(out / "overlap.csv", ("run", "method", "class", "wrong", "size", "rate", "named"), lines)
    with atomic_write(out / "overlap.png") as aside:
        save_figure(draw_overlap(found), aside)
