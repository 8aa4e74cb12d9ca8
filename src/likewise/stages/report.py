"""`likewise report`: one HTML page about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Report
    from likewise.render.results import Page


def report(config: Report, say=print) -> Page:
    """Write the page and return its path."""
    from likewise.render.results import Page
    from likewise.report.write import report as write

    return Page(write(config, say))
