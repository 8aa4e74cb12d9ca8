"""noise: write data with injected label noise as a table, with figures of the changed labels and the class tree."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from likewise.core.contracts import Protocol
from likewise.core.errors import print_text
from likewise.core.files import check_output_path
from likewise.core.notebook import table as notebook_table
from likewise.core.notebook import view
from likewise.core.render.figures import (
    BETTER_COLOUR,
    FAINT_COLOUR,
    INK_COLOUR,
    SOFT_COLOUR,
    WORSE_COLOUR,
    save_figure,
    shorten,
)
from likewise.core.render.tables import escape
from likewise.core.settings import Noise, check
from likewise.core.settings.spec import build
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import default_protocol, inject_noise, load_items
from likewise.data.protocols.splits import split_by
from likewise.data.table import write_noisy
from likewise.data.taxonomies import taxonomy

MAX_NAME_LETTERS = 40
"""Longest name of a class on an axis."""

MAX_LISTED_CLASSES = 15
"""Number of classes that the terminal lists, those with the most wrong labels first."""

MAX_NAMED_CLASSES, MAX_MATRIX_LINES, MAX_NAMED_GROUPS, MAX_TREE_CLASSES = 60, 400, 40, 500
"""Largest numbers of class names, lines and group names in the matrix, and of classes in the tree."""

WRONG_COLOURS = LinearSegmentedColormap.from_list("wrong", ["#ffffff", "#fbd9b8", "#f0a35c", WORSE_COLOUR, "#7a2e00"])
"""Colour map of wrong labels."""


@dataclass(frozen=True, eq=False)
class NoisyItems:
    """Items with wrong labels, the rows whose labels could change, and the paths of the table and the figures."""

    items: Items
    rows: Int[np.ndarray, "n"]
    table: Path
    figures: tuple[Path, ...]

    @view
    def _repr_html_(self) -> str:
        assert self.items.y_clean is not None
        wrong = int((self.items.y_clean[self.rows] != self.items.y[self.rows]).sum())
        lines = [
            ("training labels", len(self.rows)),
            ("wrong", f"{wrong} ({wrong / max(1, len(self.rows)):.2%})"),
            ("table", self.table),
            ("figures", ", ".join(map(str, self.figures))),
        ]
        return notebook_table(f"{self.items.name} with wrong labels", (), lines)


def noise(config: Noise, say=print) -> NoisyItems:
    """Inject label noise into the train and val splits together, and write the table and figures of the changed labels."""
    check(config)
    suffix = Path(config.out).suffix.lower()
    out = check_output_path(config.out, suffix if suffix == ".parquet" else ".csv", "noise")
    if out.resolve() == Path(config.data).expanduser().resolve():
        raise LikewiseError(
            f"noise: --out must not be the data itself, got '{config.out}' for both; choose another --out"
        )
    items = read_clean(config, say)
    text = config.protocol or default_protocol(items)
    protocol = build(text, Protocol, allow_imports=config.allow_imports)
    split = split_by(protocol, items)
    rows = np.flatnonzero((split == "train") | (split == "val"))
    items = dataclasses.replace(
        inject_noise(items, protocol, config.model, config.seed, config.allow_imports), split=split
    )
    write_noisy(items, out, drop_wrong=config.drop_wrong)
    return NoisyItems(items, rows, out, draw_noise(items, rows, out))


def read_clean(config: Noise, say) -> Items:
    """Return the data with the taxonomy of the config. Raise if the data already has injected noise."""
    items = load_items(
        config.data, config.root, strict=config.strict, quiet=config.quiet, say=say, allow_imports=config.allow_imports
    )
    if items.y_clean is not None:
        raise LikewiseError(
            f"noise: the labels of '{config.data}' must be without injected noise, got a table with `label_clean`; "
            "start from the clean data"
        )
    if not config.taxonomy:
        return items
    return dataclasses.replace(items, taxonomy=taxonomy(config.taxonomy, items.class_name))


def draw_noise(items: Items, rows: Int[np.ndarray, "n"], table: Path) -> tuple[Path, ...]:
    """Write figures beside the table and return their paths: the transition matrix, and the class tree if there is one."""
    figures = {table.with_name(f"{table.stem}.png"): draw_transitions(items, rows)}
    if items.taxonomy is not None and items.y_clean is not None:
        names = [items.class_name[c] for c in np.unique(items.y_clean[rows])]
        figures[table.with_name(f"{table.stem}_tree.png")] = draw_tree(items.taxonomy, names)
    for file, figure in figures.items():
        save_figure(figure, file)
    return tuple(figures)


def show_noisy_items(found: NoisyItems, config: Noise) -> None:
    """Print the wrong labels and the files of `likewise noise`; nothing with --quiet."""
    if not config.quiet:
        show_noise(found.items, found.rows)
        print_text("\n".join([f"table: {found.table}", *(f"figure: {file}" for file in found.figures)]))


def show_noise(items: Items, rows: Int[np.ndarray, "n"]) -> None:
    """Print the number of wrong labels, the classes that changed most, and the classes that are left without pairs."""
    assert items.y_clean is not None
    if items.label_name is not None:
        show_label_noise(items, rows)
        return
    before, after = (np.bincount(y[rows], minlength=items.classes) for y in (items.y_clean, items.y))
    wrong = items.y_clean[rows] != items.y[rows]
    lost, gained = (np.bincount(y[rows][wrong], minlength=items.classes) for y in (items.y_clean, items.y))
    share = lost / before.clip(1)
    worst = [c for c in np.lexsort((-lost, -share)).tolist() if before[c] and (lost[c] or gained[c])]
    cells = {c: (before[c], lost[c], f"{100 * share[c]:.0f}", gained[c], after[c]) for c in worst}
    console, present = Console(highlight=False), before > 0
    print_first(console, ("class", "samples", "lost", "%", "gained", "now"), items.class_name, cells, "classes")
    console.print(
        f"{wrong.sum()} of {len(rows)} training labels are wrong ({100 * wrong.mean():.2f} %), in {(lost > 0).sum()} of "
        f"{present.sum()} classes"
    )
    for what, picked in (
        ("without samples", present & (after == 0)),
        ("with one sample, so without pairs", present & (after == 1)),
    ):
        names = [escape(items.class_name[c]) for c in np.flatnonzero(picked)]
        if names:
            console.print(f"classes {what}: {len(names)} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})")


def show_label_noise(items: Items, rows: Int[np.ndarray, "n"]) -> None:
    """Print the number of missing and superfluous labels, for samples with several labels, and the labels that changed most."""
    assert items.y_clean is not None and items.label_name is not None and items.label_sets is not None
    sets = [set(one) for one in items.label_sets]
    true, given = ([sets[c] for c in y[rows]] for y in (items.y_clean, items.y))
    before = Counter(label for one in true for label in one)
    missing = Counter(label for one, other in zip(true, given) for label in one - other)
    added = Counter(label for one, other in zip(true, given) for label in other - one)
    worst = sorted(missing.keys() | added.keys(), key=lambda label: (-missing[label] - added[label], label))
    cells = {c: (before[c], missing[c], added[c], before[c] - missing[c] + added[c]) for c in worst}
    console = Console(highlight=False)
    print_first(console, ("label", "samples", "missing", "superfluous", "now"), items.label_name, cells, "labels")
    samples = int((items.y[rows] != items.y_clean[rows]).sum())
    console.print(
        f"of {before.total()} training labels, {missing.total()} are missing, and {added.total()} superfluous ones were added; "
        f"{samples} of {len(rows)} samples have wrong labels"
    )


def print_first(
    console: Console, head: Sequence[str], names: Sequence[str], cells: dict[int, tuple], noun: str
) -> None:
    """Print a table of the first classes or labels, and the number of the others."""
    if cells:
        table = Table(*head)
        for number, line in list(cells.items())[:MAX_LISTED_CLASSES]:
            table.add_row(escape(names[number]), *map(str, line))
        console.print(table)
    if len(cells) > MAX_LISTED_CLASSES:
        console.print(f"and {len(cells) - MAX_LISTED_CLASSES} more {noun} that changed less", style="dim")


def draw_transitions(items: Items, rows: Int[np.ndarray, "n"]) -> Figure:
    """Return the transition matrix as a figure: line = true class, column = given label, colour = share of the class.

    Classes of one group of the taxonomy are adjacent.
    """
    assert items.y_clean is not None
    order = in_order(items, np.union1d(items.y_clean[rows], items.y[rows]))
    place = np.full(items.classes, -1)
    place[order] = np.arange(len(order)) * min(len(order), MAX_MATRIX_LINES) // len(order)  # too many lines are merged
    true, now = place[items.y_clean[rows]], place[items.y[rows]]
    lines = place.max() + 1
    count = np.bincount(true * lines + now, minlength=lines * lines).reshape(lines, lines)
    share = count / count.sum(1, keepdims=True).clip(1)
    side = float(np.clip(3.2 + 0.17 * lines, 5.2, 11))
    figure = Figure(figsize=(side + 1.6, side + 1.0), facecolor="white", layout="constrained")
    axes = figure.subplots()
    changed = 100 * (items.y_clean[rows] != items.y[rows]).mean()
    merged = f", {lines} lines of several classes each" if lines < len(order) else ""
    figure.suptitle(
        f"{changed:.1f} % of {len(rows)} training labels are wrong; {len(order)} classes{merged}",
        x=0.012, ha="left", fontsize=11, fontweight="bold", color=INK_COLOUR,
    )  # fmt: skip
    paint(figure, axes, share)
    names = [items.class_name[c] for c in order]
    label_lines(axes, names, [(items.taxonomy or {}).get(name, ()) for name in names], place[order])
    axes.set_xlabel("given label", fontsize=9, color=INK_COLOUR)
    axes.set_ylabel("true class", fontsize=9, color=INK_COLOUR)
    return figure


def in_order(items: Items, classes: Int[np.ndarray, "C"]) -> list[int]:
    """Return classes in the order of the taxonomy; by number without a taxonomy."""
    tree = items.taxonomy
    return (
        classes.tolist()
        if tree is None
        else sorted(classes.tolist(), key=lambda c: (tree.get(items.class_name[c], ()), c))
    )


def paint(figure: Figure, axes: Axes, share: Float[np.ndarray, "L L"]) -> None:
    """Draw wrong labels in colour and right labels in grey, so that the diagonal does not hide few wrong labels."""
    lines, right = len(share), np.eye(len(share), dtype=bool)
    wrong, kept = np.ma.masked_array(share, right), np.ma.masked_array(share, ~right)
    most = max(float(wrong.filled(0).max()), 1e-9)
    image = axes.imshow(wrong, cmap=WRONG_COLOURS, norm=PowerNorm(0.6, 0, most), interpolation="nearest")
    axes.imshow(kept, cmap="Greys", vmin=0, vmax=1.6, interpolation="nearest")
    if lines <= 20:
        for i, j in zip(*np.nonzero(share)):
            dark = i == j or share[i, j] > 0.6 * most
            axes.text(
                j,
                i,
                f"{100 * share[i, j]:.0f}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else INK_COLOUR,
            )
    bar = figure.colorbar(image, ax=axes, shrink=0.5, aspect=25, pad=0.02, format=lambda v, _: f"{100 * v:.3g} %")
    bar.set_label("share of the true class", fontsize=8, color=INK_COLOUR)
    bar.ax.tick_params(labelsize=8, length=0, labelcolor=INK_COLOUR)
    bar.outline.set_visible(False)


def label_lines(axes: Axes, names: list[str], paths: list[tuple[str, ...]], place: Int[np.ndarray, "C"]) -> None:
    """Label the axes with class names, or with group names for many classes; draw lines between groups."""
    spans = groups(paths)
    for _, first, _ in spans[1:]:
        for line in (axes.axhline, axes.axvline):
            line(place[first] - 0.5, color=SOFT_COLOUR, lw=0.5, alpha=0.6)
    if len(names) <= MAX_NAMED_CLASSES:
        ticks = {at: shorten(name, MAX_NAME_LETTERS) for at, name in enumerate(names)}
    else:
        thick = 0.011 * (place[-1] + 1)  # the names of thinner groups would overlap
        spans = [(name, place[first] - 0.5, place[last] + 0.5) for name, first, last in spans]
        ticks = {(low + high) / 2: shorten(name, MAX_NAME_LETTERS) for name, low, high in spans if high - low >= thick}
    size = 8 if len(ticks) <= 30 else 6.5
    axes.set_xticks(list(ticks), ticks.values(), rotation=90, fontsize=size, color=INK_COLOUR, parse_math=False)
    axes.set_yticks(list(ticks), ticks.values(), fontsize=size, color=INK_COLOUR, parse_math=False)
    axes.tick_params(length=0)
    for edge in axes.spines.values():
        edge.set_color(FAINT_COLOUR)


def groups(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, int, int]]:
    """Return (name, first, last) of adjacent classes that share an ancestor; the largest group is split while few enough."""
    most = min(MAX_NAMED_GROUPS, max(3, len(paths) // 4))
    found, whole = [(0, len(paths), 0)], []  # first, end, number of common ancestors
    while found:
        group = max(found, key=lambda one: one[1] - one[0])
        found.remove(group)
        first, end, depth = group
        heads = [paths[i][: depth + 1] for i in range(first, end)]
        edges = [first, *(first + i for i in range(1, len(heads)) if heads[i] != heads[i - 1]), end]
        if len(heads[0]) <= depth or len(found) + len(whole) + len(edges) - 1 > most:
            whole.append(group)
        else:
            found += [(low, high, depth + 1) for low, high in pairwise(edges)]
    return [(paths[first][depth - 1] if depth else "", first, end - 1) for first, end, depth in sorted(whole)]


@dataclass(frozen=True)
class Node:
    """An inner node or a leaf of the tree; `line` is its vertical position in the figure, in leaves counted from the top."""

    name: str
    line: float
    children: tuple[Node, ...] = ()

    @property
    def height(self) -> int:
        """Number of levels below this node."""
        return 1 + max(child.height for child in self.children) if self.children else 0


def draw_tree(taxonomy: dict[str, tuple[str, ...]], classes: Sequence[str]) -> Figure:
    """Return the taxonomy of these classes as a figure, root on the left, without nodes that have one child.

    With more than `MAX_TREE_CLASSES` classes, leaves are the parents of the classes.
    """
    leaves = sorted((taxonomy.get(name, ()), name) for name in classes)
    if len(leaves) > MAX_TREE_CLASSES:
        kinds = Counter(path for path, _ in leaves)
        leaves = sorted(
            (path[:-1], f"{path[-1] if path else 'none'} ({count} classes)") for path, count in kinds.items()
        )
    root = grow(leaves)
    step, letter = 1.35, 0.062  # inches
    text = letter * max(len(name) for _, name in leaves)
    figure = Figure(figsize=(0.4 + step * root.height + text, 0.5 + 0.15 * len(leaves)), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.text(
        0,
        root.line,
        f"{root.name} ",
        ha="right",
        va="center",
        fontsize=8,
        fontweight="bold",
        color=BETTER_COLOUR,
        parse_math=False,
    )
    _draw_node(axes, root, 0, root.height)
    axes.set_xlim(-letter * (len(root.name) + 3) / step, root.height + (text + 0.15) / step)
    axes.set_ylim(len(leaves), -1)
    axes.axis("off")
    return figure


def grow(leaves: Sequence[tuple[tuple[str, ...], str]], first: int = 0, depth: int = 0) -> Node:
    """Return the node of sorted (path, class) leaves; the first leaf is in line `first`; all share `depth` ancestors."""
    if len(leaves) == 1:
        return Node(leaves[0][1], first)
    path = leaves[0][0]
    while depth < len(path) and leaves[-1][0][: depth + 1] == path[: depth + 1]:
        depth += 1
    children = []
    for _, below in groupby(leaves, key=lambda leaf: leaf[0][depth : depth + 1] or leaf[1]):
        below = list(below)
        children.append(grow(below, first, depth))
        first += len(below)
    return Node(path[depth - 1] if depth else "", (children[0].line + children[-1].line) / 2, tuple(children))


def _draw_node(axes: Axes, node: Node, x: int, end: int) -> None:
    if node.children:
        axes.plot([x, x], [node.children[0].line, node.children[-1].line], color=SOFT_COLOUR, lw=1)
    for child in node.children:
        axes.plot(
            [x, x + 1 if child.children else end],
            [child.line] * 2,
            color=SOFT_COLOUR if child.children else FAINT_COLOUR,
            lw=1,
        )
        if child.children:
            axes.text(
                x + 0.04, child.line - 0.12, child.name, va="bottom", fontsize=7, color=BETTER_COLOUR, parse_math=False
            )
            _draw_node(axes, child, x + 1, end)
        else:
            axes.text(end + 0.03, child.line, child.name, va="center", fontsize=7.5, color=INK_COLOUR, parse_math=False)
