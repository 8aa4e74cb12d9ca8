"""Results of commands with a notebook view. Scores and comparisons are dicts."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from likewise.core.notebook import table, view
from likewise.score.compare import INTERVAL_SCOPE, conclusion, headline, no_interval_lines
from likewise.score.metrics import as_text
from likewise.score.score_table import corrected_notes, interval_lines, label_lines, score_heads, score_lines


class Scored(dict):
    """The content of scores.json."""

    @view
    def _repr_html_(self) -> str:
        if "interval_over" not in self:  # only metrics of the whole set
            return table(
                "scores", score_heads(self)[:2], [line[:2] for line in score_lines(self)], interval_lines(self)
            )
        notes = [f"{self['queries']} queries scored, {self['unscored']} not (no relevant rows)"]
        notes += [f"{self['similarity']} similarity in {self['dim']} dimensions", *interval_lines(self)]
        notes += [*corrected_notes(self), *label_lines(self)]
        notes += [self["leaks"]] if self.get("leaks") else []
        title = f"scores, {self['split']} split" if "split" in self else "scores"
        return table(title, score_heads(self), score_lines(self), notes)


class Compared(dict):
    """The comparison of run B with run A."""

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        printer.text(conclusion(self))  # printing every changed query would take seconds

    @view
    def _repr_html_(self) -> str:
        lines = []
        for name, about in self["metrics"].items():
            ends = about[f"over_{self['over']}"]
            span = "" if ends["low"] is None else f"{100 * ends['low']:+.2f} to {100 * ends['high']:+.2f}"
            sides = (f"{100 * about[side]:.2f}" for side in "ab")
            lines.append((name, *sides, f"{100 * about['difference']:+.2f}", span))
        heads = ("points", "A", "B", "B - A", f"95 % interval over {self['over']}")
        notes = [f"A: {self['a']}", f"B: {self['b']}", *no_interval_lines(self), INTERVAL_SCOPE]
        notes = [headline(self), self["on"]["sentence"], *notes] if "on" in self else notes
        return table(f"{conclusion(self)}.", heads, lines, notes)


class DemoResult(dict):
    """Result of the demo: scores before training, of the plain and of the robust run; flagged labels; robust run; figure."""

    @view
    def _repr_html_(self) -> str:
        sides = ("before", "plain", "robust")
        lines = [
            (name, *(as_text(name, self[side]["metrics"][name]) for side in sides))
            for name in self["robust"]["metrics"]
        ]
        notes = [*self["flagged"], f"run: {self['run'].path}", f"figure: {self['figure']}"]
        return table("glyphs with wrong labels", ("metric", "before training", *sides[1:]), lines, notes)


@dataclass(frozen=True)
class Page:
    """An HTML page on disk, which a notebook shows as a link."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @view
    def _repr_html_(self) -> str:
        return f'<div>page: <a href="{escape(self.path.as_posix())}">{escape(str(self.path))}</a></div>'
