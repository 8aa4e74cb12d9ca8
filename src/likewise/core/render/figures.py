"""Shared by all figures: colours, titles, look of axes, shortened names, places of labels, and saving."""

from __future__ import annotations

import io
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from likewise.core.files import atomic_write
from likewise.core.render.gallery import one_line

INK_COLOUR, SOFT_COLOUR, FAINT_COLOUR, BETTER_COLOUR, WORSE_COLOUR = (
    "#1d2430",
    "#8a94a3",
    "#d5dae2",
    "#0072b2",
    "#d55e00",
)
"""Text, secondary text, rules, gains and losses. The last two are blue and vermilion of the palette below."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Palette of Okabe and Ito, whose colours are distinct for colour-blind readers too."""


ROUND_STEPS = (1, 2, 2.5, 5, 10)
"""Distances between ticks, up to powers of ten."""

WITHOUT_COLOUR, WITH_COLOUR = COLOURS[0], COLOURS[1]
"""Colours of trainings without and with a regularisation, in all figures that compare the two."""


class Estimate(NamedTuple):
    """Mean and standard deviation over seeds (n - 1 in the denominator; NaN for a single seed)."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the estimate from the values of the seeds, at least one."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else np.nan, len(values))

    def text(self, digits: int) -> str:
        """Return "63.1 ± 0.5"; without ± for a single seed."""
        return f"{self.mean:.{digits}f}" + ("" if np.isnan(self.std) else f" ± {self.std:.{digits}f}")


class Picture(NamedTuple):
    """A drawn figure: its title, PNG content, file name, and whether it is shown above the table of its page (`leads`).

    `svg`: the same figure for a page, in the colours of the page; "" if there is none.
    """

    title: str
    png: bytes
    file: str
    leads: bool = False
    svg: str = ""


def shorten(text: str, most: int) -> str:
    """Return the text on one line, cut to `most` characters with an ellipsis at its end if it is longer."""
    text = one_line(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def save_figure(figure: Figure, file: Path) -> None:
    """Write a figure as PNG. A character that the font lacks is drawn as a box, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        with atomic_write(file) as aside:
            figure.savefig(aside, format="png", dpi=150)


def write_figure(figure: Figure, file: Path) -> bytes:
    """Write a figure to a PNG file and return the content of the file."""
    save_figure(figure, file)
    return file.read_bytes()


def themed_svg(figure: Figure) -> str:
    """Return a figure as SVG to be put into a page: text stays text, and its colours are variables of the page's theme."""
    out = io.StringIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "likewise"}):
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for colour, name in ((INK_COLOUR, "--ink"), (SOFT_COLOUR, "--soft"), (FAINT_COLOUR, "--line")):
        text = text.replace(colour, f"var({name})")
    return text


def spread(wanted: Float[np.ndarray, "M"], gap: float, low: float, high: float) -> Float[np.ndarray, "M"]:
    """Return heights near the wanted ones (ascending) with at least `gap` between them, within `low` and `high` if possible."""
    steps = gap * np.arange(len(wanted))
    up = np.maximum.accumulate(wanted - steps)  # lowest heights that are not below the wanted ones
    down = np.minimum.accumulate((wanted - steps)[::-1])[::-1]  # highest heights that are not above them
    return np.maximum(np.minimum((up + down) / 2, high - steps[-1]), low) + steps


def entitle(figure: Figure, title: str, below: str) -> None:
    """Write a bold title and a line below it into the top left corner of a figure."""
    wide, tall = figure.get_size_inches()
    look = {"va": "center", "color": INK_COLOUR, "parse_math": False}
    figure.text(0.12 / wide, 1 - 0.25 / tall, title, fontsize=12, fontweight="bold", **look)
    figure.text(0.12 / wide, 1 - 0.5 / tall, below, fontsize=9, **look)


def tidy(axes: Axes, names: Sequence[str] = ()) -> None:
    """Give axes the look of all figures: thin rules, no frame; with `names`, one line for each name."""
    if names:
        axes.set_yticks(range(len(names)), names, fontsize=9, color=INK_COLOUR, parse_math=False)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(7, steps=ROUND_STEPS))
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND_STEPS))
    axes.tick_params(length=0, colors=INK_COLOUR, labelsize=9)
    axes.grid(axis="x" if names else "both", color=FAINT_COLOUR, lw=0.7)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
