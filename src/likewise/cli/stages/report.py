"""`likewise report`: one HTML page about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Report
    from likewise.score.result_views import Page


def report(config: Report, say=print) -> Page:
    """Write the page and return its path."""
    from likewise.report.write_report import report as write
    from likewise.score.result_views import Page

    return Page(write(config, say))
