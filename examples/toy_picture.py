"""The figure of toy_lines.py: points, embeddings on the circle, spectra, and the results of each variant over several seeds."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.lines
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

TRAIN = ("#d1495b", "#edae49", "#30a57f", "#2e6f9e")
TEST = ("#7b5ea7", "#c06c9b", "#8d99ae", "#4a4e69")
INK, SOFT, PAPER = "#22262e", "#8a909c", "#ffffff"
PULLS, PUSHES = "#9aa5b4", "#d1495b"  # with the positive term, and without
INNER = 0.72
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#c9ced6",
    "xtick.color": SOFT, "ytick.color": SOFT, "axes.titlesize": 11.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titlepad": 10, "axes.spines.top": False, "axes.spines.right": False, "savefig.facecolor": PAPER,
}  # fmt: skip


def draw(plays: list, lines: str, out: str) -> None:
    """Draw the results of `play` for every seed; the upper row shows the first seed."""
    x, other, results = plays[0]
    base, study = results[:2]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.6, 8.4), dpi=150)
        above = figure.add_gridspec(1, 3, left=0.05, right=0.985, top=0.845, bottom=0.445, wspace=0.08)
        below = figure.add_gridspec(
            1, 2, width_ratios=(1, 1.75), left=0.05, right=0.985, top=0.35, bottom=0.075, wspace=0.3
        )
        figure.text(0.05, 0.952, "What flattens the spectrum of an embedding?", size=19, weight="bold")
        found = "Leaving out the pull does; a rare swap of positive and negative, by itself, does not."
        about = f"Four classes of points on {lines} lines, embedded on the circle. {found if study.variant.p < 0.01 else ''}"
        figure.text(0.05, 0.915, about, size=11, color="#555b66")
        draw_points(figure.add_subplot(above[0]), x, other)
        draw_circle(figure.add_subplot(above[1]), base, "base: pull and push")
        draw_circle(figure.add_subplot(above[2]), study, f"study's script: push only, p = {study.variant.p:g}")
        draw_spectra(figure.add_subplot(below[0]), base, study)
        draw_variants(figure.add_subplot(below[1]), plays)
        figure.savefig(out)


def draw_points(axes: Axes, x, other) -> None:
    for points, colours, marker, size in ((other, TEST, "D", 20), (x, TRAIN, "o", 34)):
        scatter(axes, points, colours, marker, size)
    axes.set(
        title="the data",
        aspect="equal",
        anchor="W",
        xlim=(0, 1.12),
        ylim=(0, 1.12),
        xticks=(0, 0.5, 1),
        yticks=(0, 0.5, 1),
    )
    axes.legend(
        handles=[key("o", TRAIN[0], 6.5), key("D", TEST[0], 5.5)],
        labels=["four classes to train on (outer ring)", "four to test on (inner ring)"],
        frameon=False, loc="upper left", handletextpad=0.3, borderpad=0.1, labelcolor=INK, fontsize=9,
    )  # fmt: skip


def draw_circle(axes: Axes, result, title: str) -> None:
    """Training points around the outer circle, test points around the inner; a little apart, to be seen where they pile up."""
    for radius in (1, INNER):
        axes.add_patch(Circle((0, 0), radius, fill=False, color="#d9dde3", linewidth=1, zorder=0))
    rng = np.random.default_rng(0)
    for z, colours, marker, size, radius in ((result.test, TEST, "D", 20, INNER), (result.train, TRAIN, "o", 34, 1)):
        scatter(axes, z.numpy() * (radius + rng.uniform(-0.055, 0.055, (len(z), 1))), colours, marker, size)
    first, second = result.spectrum
    axes.text(0, 0.16, f"{first:.2f} : {second:.2f}", ha="center", va="center", size=15, weight="bold")
    axes.text(0, -0.03, "spectrum", ha="center", va="center", color=SOFT, size=9)
    axes.text(0, -0.2, f"R@1 on unseen {result.recall:.2f}", ha="center", va="center", color=SOFT, size=9)
    axes.set(title=title, aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), anchor="W")
    axes.axis("off")


def draw_spectra(axes: Axes, base, study) -> None:
    for shift, result, colour in ((-0.19, base, PULLS), (0.19, study, PUSHES)):
        bars = axes.bar(np.arange(2) + shift, result.spectrum, 0.34, color=colour, label=result.variant.name)
        for label in axes.bar_label(bars, fmt="%.3f", padding=3, fontsize=9):
            label.set_bbox({"color": PAPER, "pad": 0.8})
    axes.axhline(0.5, color=SOFT, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
    axes.text(-0.67, 0.515, "flat", color=SOFT, fontsize=9)
    axes.set(title="normalised spectrum", xticks=(0, 1), xlim=(-0.7, 1.5), ylim=(0, 1.08), yticks=(0, 0.5, 1))
    axes.set_xticklabels(["first", "second"], color=INK)
    axes.legend(frameon=False, loc="upper right", fontsize=9, labelcolor=INK, handlelength=1.1)
    axes.tick_params(length=0)


def draw_variants(axes: Axes, plays: list) -> None:
    """Draw the second singular value of every variant: one dot per seed, a bar for their mean."""
    names = []
    for line, same in enumerate(zip(*(results for _, _, results in plays), strict=True)):
        variant, value = same[0].variant, [r.spectrum[1] for r in same]
        colour = PULLS if variant.pull else PUSHES
        axes.plot([0, 0.5], [line, line], color="#eceff3", linewidth=1, zorder=0)
        axes.plot([np.mean(value)] * 2, [line - 0.3, line + 0.3], color=colour, linewidth=3, solid_capstyle="round")
        axes.scatter(value, [line] * len(value), s=46, color=colour, edgecolor=PAPER, linewidth=0.8, zorder=3)
        axes.text(0.508, line, f"{np.mean(value):.3f}", va="center", fontsize=10, weight="bold")
        names.append(variant.name + (f"\np = {variant.p:g}" if variant.p else ""))
    axes.axvline(0.5, color=SOFT, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
    seeds = f"{len(plays)} seeds" if len(plays) > 1 else "one seed"
    axes.set(title=f"second singular value, {seeds}", xlim=(0, 0.55), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_xlabel("0: a single direction is used. 0.5: flat", color=SOFT)
    axes.set_xticks(np.arange(6) / 10)
    handles = [key("o", PULLS, 7), key("o", PUSHES, 7)]
    axes.legend(
        handles=handles, labels=["with the positive term", "without it"], frameon=False, loc="lower right", fontsize=9,
        bbox_to_anchor=(1.0, 0.98), ncols=2, handletextpad=0.2, columnspacing=1.2, labelcolor=INK, borderpad=0,
    )  # fmt: skip
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


def scatter(axes: Axes, points, colours: tuple[str, ...], marker: str, size: float) -> None:
    for own, colour in zip(np.split(np.asarray(points), len(colours)), colours, strict=True):
        axes.scatter(*own.T, s=size, color=colour, marker=marker, edgecolor=PAPER, linewidth=0.7, zorder=3)


def key(marker: str, colour: str, size: float):
    return mpl.lines.Line2D([], [], color=colour, marker=marker, linestyle="", markersize=size, markeredgecolor=PAPER)
