"""Spectra of training embeddings, stored in the run folder, and class spectra with rho-regularisation (figure 11).

Spectra are computed once and stored in the run folder; several figures use them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.errors import LikewiseError
from likewise.core.files import read_json, write_json
from likewise.core.progress import bar
from likewise.core.render.figures import WITH_COLOUR, WITHOUT_COLOUR, Estimate, entitle, tidy
from likewise.core.settings import Bench
from likewise.papers.figures.drawing import Drawing, FinishedTable, SeedGroup, partners, styled
from likewise.runs.folder import Run
from likewise.runs.scores import REWRITE_HINT

SPECTRA_FILE = "spectra.json"
"""File of the run folder: spectral decay and spectra of its training embeddings."""

MAX_ROW_PANELS = 3
"""Largest number of panels in a row."""

PANEL_WIDTH, PANEL_HEIGHT = 2.7, 2.3
"""Inches: size of a panel without its labels."""


class Spectra(NamedTuple):
    """Spectral decay, singular values of all embeddings, and mean singular values of the classes; both spectra sum to 1."""

    rho: float
    whole: Float[np.ndarray, "S"]
    classes: Float[np.ndarray, "R"]


class SpectrumLine(NamedTuple):
    """One line: its panel and name, the singular values by rank, largest first, and its colour."""

    panel: str
    name: str
    values: Float[np.ndarray, "R"]
    colour: str


def measure_spectra(groups: Sequence[SeedGroup], config: Bench) -> tuple[list[list[Spectra]], list[str]]:
    """Return the spectra of the training embeddings of all runs of each group, and notes about runs that have none."""
    found, notes = [], []
    with bar("training embeddings", sum(len(group.runs) for group in groups), quiet=config.quiet) as progress:
        for group in groups:
            found.append([])
            for t in group.runs:
                try:
                    found[-1].append(training_spectra(t.job.run, config))
                except LikewiseError as error:
                    notes.append(f"{group.row}: the training samples could not be embedded: {error}")
                progress.advance(1)
    return found, list(dict.fromkeys(notes))


def training_spectra(run: Run, config: Bench) -> Spectra:
    """Return rho and the spectra of the training embeddings of a run. Computed once, and stored in its folder."""
    file = run.path / SPECTRA_FILE
    if not file.exists():
        write_json(file, compute_spectra(run, config))
    about = read_json(file, "bench", hint=REWRITE_HINT)
    return Spectra(about["rho"], np.array(about["spectrum"]), np.array(about["class_spectrum"]))


def compute_spectra(run: Run, config: Bench) -> dict:
    """Return the content of spectra.json. `rho` is the value of `likewise evaluate RUN --split train --metrics rho`."""
    from torch.nn.functional import normalize

    from likewise.runs.open import OpenRun
    from likewise.score.checks import rows_of
    from likewise.score.metrics.spectrum import class_spectrum, measure, spectrum

    opened = OpenRun(run, device=config.device, allow_imports=config.allow_imports, quiet=True, say=lambda line: None)
    e = opened.embed(opened.items, rows_of(opened.protocol, opened.items, "train"), title="embed train split")
    unit = normalize(e.z, dim=1)
    return {
        "split": "train", "samples": len(unit), "rho": measure(["rho"], e.z, e.y)["rho"],
        "spectrum": spectrum(unit).tolist(), "class_spectrum": class_spectrum(unit, e.y).tolist(),
    }  # fmt: skip


def rho_of(spectra: Sequence[Spectra]) -> Estimate:
    """Return the spectral decay over seeds; NaN without any."""
    return Estimate.of([one.rho for one in spectra]) if spectra else Estimate(np.nan, np.nan, 0)


def draw(table: FinishedTable) -> Drawing:
    """Return the class spectra with and without rho-regularisation, one panel per method, and notes."""
    groups = table.seed_groups()
    pairs = partners(group.row for group in groups)
    groups = [group for group in groups if group.row in (*pairs, *pairs.values())]
    spectra, notes = measure_spectra(groups, table.config)
    mean = {group.row: np.mean([one.classes for one in own], 0) for group, own in zip(groups, spectra) if own}
    lines = []
    for plain, regularised in pairs.items():
        lines += [SpectrumLine(plain, "without", mean[plain], WITHOUT_COLOUR)] if plain in mean else []
        lines += (
            [SpectrumLine(plain, "with rho-regularisation", mean[regularised], WITH_COLOUR)]
            if regularised in mean
            else []
        )
    if not lines:
        return Drawing(None, notes or ["no class spectra: no method has rows with and without rho-regularisation"])
    values = {"class_spectra": (
        ["method", "regularised", "rank", "share"],
        [
            [line.panel, "no" if line.name == "without" else "yes", rank, value]
            for line in lines
            for rank, value in enumerate(line.values, 1)
        ],
    )}  # fmt: skip
    return Drawing(draw_spectra(lines, table.data_name), [*describe(pairs, mean), *notes], values)


def describe(pairs: dict[str, str], mean: dict[str, np.ndarray]) -> list[str]:
    """Return a note: the first singular value of the classes without and with regularisation, for each method with both."""
    both = [(plain, mean[plain][0], mean[other][0]) for plain, other in pairs.items() if {plain, other} <= mean.keys()]
    if not both:
        return []
    texts = "; ".join(f"{name} {100 * before:.1f} and {100 * after:.1f}" for name, before, after in both)
    less = sum(after < before for _, before, after in both)
    return [
        f"Largest singular value of a class in per cent of their sum, without and with rho-regularisation: {texts}. It is "
        f"smaller with regularisation for {less} of {len(both)} methods (the paper: slower decay for all)."
    ]


@styled
def draw_spectra(lines: Sequence[SpectrumLine], data: str) -> Figure:
    """Return one panel per method with a logarithmic axis that all panels share; ranks whose value is 0 are not drawn."""
    panels = list(dict.fromkeys(line.panel for line in lines))
    beside = min(MAX_ROW_PANELS, len(panels))
    rows = math.ceil(len(panels) / beside)
    wide, tall = max(7.0, 0.5 + (PANEL_WIDTH + 0.65) * beside), 1.15 + (PANEL_HEIGHT + 0.75) * rows
    figure = Figure(figsize=(wide, tall))
    ends = common_range([line.values for line in lines])
    for place, panel in enumerate(panels):
        row, column = divmod(place, beside)
        left, low = 0.75 + (PANEL_WIDTH + 0.6) * column, tall - 1.05 - PANEL_HEIGHT - (PANEL_HEIGHT + 0.75) * row
        axes = figure.add_axes((left / wide, low / tall, PANEL_WIDTH / wide, PANEL_HEIGHT / tall))
        draw_panel(axes, [line for line in lines if line.panel == panel], ends)
        axes.set(title=panel, xlabel="rank", ylabel="singular value, share of the sum" if column == 0 else "")
    keys = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels())))
    figure.legend(keys.values(), keys.keys(), loc="lower left", bbox_to_anchor=(0.65 / wide, 0), ncols=len(keys))
    entitle(
        figure, f"Singular values of the classes on {data}", "training embeddings; mean over classes and seeds, by rank"
    )
    return figure


def draw_panel(axes: Axes, lines: Sequence[SpectrumLine], ends: tuple[float, float]) -> None:
    """Draw spectra as lines with a logarithmic axis; values of 0 are left out."""
    for line in lines:
        rank = np.arange(1, len(line.values) + 1)
        some = line.values > 0
        axes.plot(rank[some], line.values[some], color=line.colour, lw=1.8, label=line.name)
    tidy(axes)
    axes.set_yscale("log")
    axes.tick_params(which="minor", length=0)
    axes.set_ylim(*ends)
    axes.set_xlim(0.5, None)
    for text in axes.get_yticklabels(which="both"):
        text.set_parse_math(True)  # powers of ten


def common_range(spectra: Sequence[Float[np.ndarray, "R"]]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis for all positive values, with some room."""
    values = np.concatenate([one[one > 0] for one in spectra])
    return 0.8 * float(values.min(initial=1.0)), 1.25 * float(values.max(initial=1e-3))
