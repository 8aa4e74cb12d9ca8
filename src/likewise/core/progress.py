"""Progress bar on stderr; without a terminal, a plain line every few seconds."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

LINE_INTERVAL_SECONDS = 5.0
"""Seconds before the first progress line, and between two, if stderr is not a terminal."""


class Bar:
    """Progress of a task: a counter of `total` units, and a text shown beside it (`facts`), such as the current loss."""

    def __init__(self, title: str, total: int, start: int, live: Progress | None, quiet: bool):
        self.title, self.total, self.done = title, total, start
        self._first, self._started, self._shown = start, time.monotonic(), time.monotonic()
        self._live, self._quiet = live, quiet
        self._task = live.add_task(title, total=total, completed=start, facts="", first=start) if live else None

    def advance(self, count: int = 1, facts: str | None = None) -> None:
        """Add finished units and redraw; `facts` replaces the text beside the bar, None keeps it."""
        self.done += count
        if self._live and self._task is not None:
            fields: dict[str, Any] = {} if facts is None else {"facts": facts}
            self._live.update(self._task, completed=self.done, **fields)
        elif not self._quiet and time.monotonic() - self._shown >= LINE_INTERVAL_SECONDS:
            self._shown = time.monotonic()
            rate = (self.done - self._first) / (self._shown - self._started)
            left = f"{(self.total - self.done) / rate:.0f} s left" if rate else "time left is not known yet"
            print(f"{self.title} {self.done}/{self.total} {facts or ''} {left}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a line on stderr, above the bar; nothing if quiet."""
        if self._live:
            self._live.console.print(text, markup=False, highlight=False)
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def reach(self, share: float, facts: str | None = None) -> None:
        """Set the progress to a fraction of the total, 0 to 1; `facts` as in `advance`."""
        self.advance(round(self.total * share) - self.done, facts)


class TimeLeft(TimeRemainingColumn):
    """The remaining time by the recent rate or, before there is one, by the rate since the start."""

    def render(self, task: Task) -> Text:
        """Return the remaining time as text, -:--:-- before anything is done."""
        done = task.completed - task.fields["first"]
        if task.time_remaining is not None or not done or task.elapsed is None or task.total is None:
            return super().render(task)
        left = task.elapsed * (task.total - task.completed) / done
        return Text(str(timedelta(seconds=math.ceil(left))), style="progress.remaining")


@contextmanager
def bar(title: str, total: int, *, start: int = 0, quiet: bool = False) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs; `start`: units that are already done."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield Bar(title, total, start, None, quiet)
        return
    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"), TimeElapsedColumn(), TextColumn("left"), TimeLeft(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, refresh_per_second=8) as live:
        yield Bar(title, total, start, live, quiet)
