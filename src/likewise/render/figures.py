"""Shared by all figures: colours, shortened names, and saving."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib.figure import Figure

from likewise.io.files import atomic_write

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


def shorten(text: str, most: int) -> str:
    """Return the text, cut to `most` characters with an ellipsis at its end if it is longer."""
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
