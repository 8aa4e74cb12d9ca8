"""Write SVG figures for light and dark pages. The same values give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

PULL, PUSH, THIRD = "#1b9e8a", "#e2583e", "#6f7fd8"
"""Colours of positives, of negatives, and of anything else."""
HUES = ("#4c8fd6", "#e2583e", "#1b9e8a", "#b07cc6", "#d99a2b", "#5aa469", "#d1628f", "#7b8794", "#8f7a5b", "#3fa7b5")

STYLE = "<style>svg{color:#30343c;font-family:system-ui,sans-serif}@media(prefers-color-scheme:dark){svg{color:#d5d9e0}}</style>"
"""Style of a figure that is opened by itself; inside a page, the page decides."""


def number(value: float) -> str:
    """Return a coordinate with one decimal, which hides rounding differences between processors."""
    text = f"{value:.1f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def short(value: float, span: tuple[float, float]) -> str:
    """Return a tick label, rounded to a hundredth of the range of the axis."""
    wide = span[1] - span[0]
    return f"{round(value, 0 if wide > 50 else 1 if wide > 5 else 2):g}"


class Drawing:
    """A figure: shapes in the order in which they are added; `text` returns the file."""

    def __init__(self, width: float, height: float, title: str):
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []

    def add(self, tag: str, content: str = "", **what: str | float) -> None:
        shown = " ".join(
            f'{key.replace("_", "-")}="{escape(v) if isinstance(v, str) else number(v)}"' for key, v in what.items()
        )
        self.shapes.append(f"<{tag} {shown}>{escape(content)}</{tag}>" if content else f"<{tag} {shown}/>")

    def write(
        self, x: float, y: float, content: str, size: float = 11, anchor: str = "start", **what: str | float
    ) -> None:
        self.add("text", content, x=x, y=y, font_size=size, text_anchor=anchor, **({"fill": "currentColor"} | what))

    def box(self, x: float, y: float, width: float, height: float, fill: str, **what: str | float) -> None:
        self.add("rect", x=x, y=y, width=width, height=height, fill=fill, **what)

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float = 2, **what: str | float) -> None:
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.add("polyline", points=path, fill="none", stroke=colour, stroke_width=width, **what)

    def dot(self, x: float, y: float, colour: str, radius: float = 2, **what: str | float) -> None:
        self.add("circle", cx=x, cy=y, r=radius, fill=colour, **what)

    @property
    def text(self) -> str:
        size = f'viewBox="0 0 {number(self.width)} {number(self.height)}" width="{number(self.width)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(self.title)}</title>{STYLE}'
        return "\n".join([head, *self.shapes, "</svg>"]) + "\n"


class Panel:
    """A frame with its own axes inside a figure; it converts values to pixels."""

    def __init__(
        self, on: Drawing, place: tuple[float, float, float, float], x: tuple[float, float], y: tuple[float, float]
    ):
        self.on, self.place, self.x, self.y = on, place, x, y

    def at(self, x: float, y: float) -> tuple[float, float]:
        left, top, width, height = self.place
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        return left + width * across, top + height * (1 - up)

    def axes(self, title: str, below: str, ticks: Sequence[float], levels: Sequence[float] | None = None) -> None:
        """Draw the title above, the name of the axis below, and a few tick labels at the left."""
        left, top, width, height = self.place
        for tick in ticks:
            x, _ = self.at(tick, self.y[0])
            self.on.line([(x, top), (x, top + height)], "currentColor", 1, opacity="0.12")
            self.on.write(x, top + height + 13, f"{tick:g}", 10, "middle", opacity="0.75")
        for level in self.y if levels is None else levels:
            _, y = self.at(self.x[0], level)
            self.on.line([(left, y), (left + width, y)], "currentColor", 1, opacity="0.12")
            self.on.write(left - 5, y + 3.5, short(level, self.y), 10, "end", opacity="0.75")
        self.on.write(left, top - 8, title, 11.5, font_weight="600")
        self.on.write(left + width / 2, top + height + 28, below, 10.5, "middle", opacity="0.85")

    def curve(self, x: Sequence[float], y: Sequence[float], colour: str, **what: str | float) -> None:
        self.on.line([self.at(a, b) for a, b in zip(x, y)], colour, **what)

    def bars(self, edges: Sequence[float], heights: Sequence[float], colour: str, **what: str | float) -> None:
        for low, high, value in zip(edges, edges[1:], heights):
            left, top = self.at(low, value)
            right, floor = self.at(high, self.y[0])
            if floor - top > 0.05:
                self.on.box(left + 0.5, top, right - left - 1, floor - top, colour, **what)


def legend(on: Drawing, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    """Draw a legend: coloured squares with words, side by side."""
    for colour, words in entries:
        on.box(x, y - 8, 9, 9, colour, rx="2")
        on.write(x + 13, y, words, 10.5)
        x += 13 + 5.7 * len(words) + 16
