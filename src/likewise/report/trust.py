"""How far labels were believed while training: one picture of a run's log, and a table of the labels most suspected."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from likewise.report.comparison import BETTER, FAINT, INK, SOFT, WORSE

GOOD = "#009e73"
"""The green of Okabe and Ito, beside their blue and vermilion."""

WINDOW = 100
"""Steps that a moving average runs over, as in the figures of ProcSim's paper."""

FOUND = {"recall": ("recall", WORSE), "precision": ("precision", BETTER), "AUROC": ("AUROC", GOOD)}
BATCHES = {"weight": ("mean weight", INK), "suspected share": ("suspected", WORSE)}
LOOKS = {
    "wrong labels": ("thought wrong", WORSE), "labels used": ("used", INK), "labels repaired": ("repaired", BETTER),
    "right among used": ("right among used", GOOD),
}  # fmt: skip


class Suspect(NamedTuple):
    """A label that the training came to doubt, and what it would rather have (None: nothing else)."""

    row: int
    given: str
    label: str | None
    suspicion: float
    weight: float
    path: str | None = None


class Told(NamedTuple):
    """What there is to tell of a run: its picture, the labels most suspected, and a sentence about all of them."""

    picture: Path
    suspects: list[Suspect]
    note: str


def show_told(runs: Sequence[Told]) -> None:
    """For each run a table of the labels most suspected, the worst first, and what must be said below it."""
    console = Console(highlight=False)
    for told in runs:
        table = Table("row", "given label", "suggested", "suspicion", "weight")
        if any(one.path for one in told.suspects):
            table.add_column("path", overflow="fold")
        for one in told.suspects:
            judged = (f"{value:.3g}" if np.isfinite(value) else "" for value in (one.suspicion, one.weight))
            path = [escape(one.path)] if one.path else []
            table.add_row(str(one.row), escape(one.given), escape(one.label or ""), *judged, *path)
        if told.suspects:
            console.print(table)
        console.print(f"{escape(told.note)}\npicture: {escape(str(told.picture))}", soft_wrap=True)


def draw_trust(lines: Sequence[dict], title: str) -> Figure | None:
    """Above: how well wrong labels were found, and how many were believed. Below: what they were judged by, on the way.

    Args:
        lines: of a run's log. None comes back where they tell nothing of trust.
    """
    batches = [(line["step"], line["trust"]) for line in lines if "trust" in line]
    looks = [(line["step"], together(line["verdict"])) for line in lines if "verdict" in line]
    passes = thinned([(line["step"], line["suspicion"]) for line in lines if "suspicion" in line])
    if not batches and not looks:
        return None
    figure = Figure(figsize=(11, 7.4 if passes else 3.9), facecolor="white", layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    figure.suptitle(
        textwrap.fill(title, 118), x=0.012, ha="left", fontsize=11, fontweight="bold", color=INK, parse_math=False
    )
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.12)) if passes else (figure.subfigures(1, 1), None)
    points, *shares = (looks, "Of all labels", LOOKS) if looks else (batches, "Of the labels in a batch", BATCHES)
    known = any(name in facts for _, facts in points for name in FOUND)
    panels = [("Wrong labels found", FOUND), shares] if known else [shares]
    for axes, (head, names) in zip(np.ravel(above.subplots(1, len(panels))), panels, strict=True):
        draw_course(axes, points, names, head, each=bool(looks))
    mark_truth(axes, true_share(looks, passes))
    if passes:
        draw_passes(below, passes)
    return figure


def together(verdict: dict[str, float]) -> dict[str, float]:
    """A verdict's facts, with all kinds of wrong labels it estimates added up."""
    kinds = [value for name, value in verdict.items() if name.startswith("wrong labels, ")]
    return verdict | ({"wrong labels": sum(kinds)} if kinds else {})


def thinned(passes: list[tuple[int, dict]]) -> list[tuple[str, dict]]:
    """The first, the middle and the last, as far as there are so many, with their titles."""
    places = sorted({0, (len(passes) - 1) // 2, len(passes) - 1}) if passes else []
    heads = {0: "after the first pass", len(passes) - 1: "at the end"}
    return [(f"{heads.get(p, 'half-way')}, step {passes[p][0]}", passes[p][1]) for p in places]


def true_share(looks: list[tuple[int, dict]], passes: list[tuple[str, dict]]) -> float | None:
    """The share of labels that are wrong, where somebody knows."""
    if looks and "right before" in looks[-1][1]:
        return 1 - looks[-1][1]["right before"]
    if passes and passes[-1][1]["wrong"] is not None:
        right, wrong = (sum(passes[-1][1][name]) for name in ("right", "wrong"))
        return wrong / (right + wrong)
    return None


def moving_mean(step: Float[np.ndarray, "n"], value: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Means of the values of the last `WINDOW` steps."""
    first = np.searchsorted(step, step - WINDOW, side="right")
    total = np.concatenate([[0.0], np.cumsum(value)])
    last = np.arange(1, len(step) + 1)
    return (total[last] - total[first]) / (last - first)


def draw_course(
    axes: Axes, points: list[tuple[int, dict]], names: dict[str, tuple[str, str]], head: str, each: bool
) -> None:
    """Shares over training; `each` value stands for itself, else they are faint behind their moving average."""
    for name, (label, colour) in names.items():
        known = [(step, facts[name]) for step, facts in points if name in facts]
        if not known:
            continue
        step, value = np.array(known, float).T
        if each:
            axes.plot(step, value, ".-", color=colour, lw=1.6, ms=5, label=f"{label} {value[-1]:.0%}", clip_on=False)
            continue
        smooth = moving_mean(step, value)
        axes.plot(step, value, color=colour, lw=0.5, alpha=0.3)
        axes.plot(step, smooth, color=colour, lw=1.8, label=f"{label} {smooth[-1]:.0%}")
    _tidy(axes, head, "step", room=24)  # for the legend
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderpad=0, borderaxespad=0.6, fontsize=8.5,
        labelcolor=INK, handlelength=1.0, handletextpad=0.4, columnspacing=1.0,
    ).set_in_layout(False)  # fmt: skip


def mark_truth(axes: Axes, share: float | None) -> None:
    if share is None:
        return
    axes.axhline(share, color=SOFT, lw=1.2, ls=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"really wrong: {share:.0%}", (1, share), (-2, -3), xycoords=("axes fraction", "data"), fontsize=8, color=SOFT,
        textcoords="offset points", ha="right", va="top",
    )  # fmt: skip


def draw_passes(figure: SubFigure, passes: list[tuple[str, dict]]) -> None:
    """Histograms of suspicion side by side, right and wrong labels apart, and the mean weight over each bin."""
    most = max([1.0, *(w for _, shown in passes for w in shown["weight"] if w is not None)])
    counts = [shown[kind] for _, shown in passes for kind in ("right", "wrong") if shown[kind]]
    top, tall = max(map(max, counts)), max(max(each) / max(1, sum(each)) for each in counts) > 0.4
    panels = np.ravel(figure.subplots(1, len(passes), sharey=True))
    for place, (axes, (head, shown)) in enumerate(zip(panels, passes, strict=True)):
        bins = np.linspace(*shown["edges"], len(shown["right"]) + 1)
        kinds = [("right", "right labels" if shown["wrong"] else "labels", BETTER), ("wrong", "wrong labels", WORSE)]
        for kind, label, colour in kinds:
            if shown[kind]:
                axes.stairs(shown[kind], bins, fill=True, color=colour, alpha=0.45, label=label)
                axes.stairs(shown[kind], bins, color=colour, lw=0.8)
        _tidy(axes, head[0].upper() + head[1:], "suspicion")
        if tall:  # nearly all in one bin: the others would not be seen
            axes.set_yscale("symlog", linthresh=1, linscale=0.3)
            axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, top * (1.6 if tall else 1.08))
        if shown["threshold"] is not None:
            axes.axvline(shown["threshold"], color=INK, lw=1.2, ls=(0, (4, 2)), label="threshold")
        other = axes.twinx()
        weight = [(x, w) for x, w in zip((bins[1:] + bins[:-1]) / 2, shown["weight"], strict=True) if w is not None]
        other.plot(*zip(*weight, strict=True), color=INK, lw=1.6, label="mean weight")
        _bare(other, (0, 1.08 * most), "mean weight" if place == len(passes) - 1 else None)
    panels[0].set_ylabel("samples", fontsize=9, color=INK)
    handles = {h.get_label(): h for axes in (*panels, other) for h in axes.get_legend_handles_labels()[0]}
    head = "All training samples, as they were last judged"
    figure.suptitle(head, x=0.012, ha="left", fontsize=10, fontweight="bold", color=INK)
    figure.legend(
        handles=handles.values(), loc="upper right", ncols=4, frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.3,
        columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _bare(axes: Axes, ends: tuple[float, float], label: str | None) -> None:
    axes.set_ylim(*ends)
    axes.tick_params(length=0, colors=INK, labelsize=8.5, labelright=label is not None)
    axes.set_ylabel(label or "", fontsize=9, color=INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _tidy(axes: Axes, head: str, below: str, room: int = 6) -> None:
    axes.set_title(head, loc="left", fontsize=10, color=INK, pad=room)
    axes.set_xlabel(below, fontsize=9, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=below == "step"))
    axes.tick_params(length=0, colors=INK, labelsize=8.5)
    axes.grid(axis="y", color=FAINT, lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
