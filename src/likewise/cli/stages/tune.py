"""`likewise tune`: search for the best settings on validation classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Tune
    from likewise.papers.tune import TuneResult


def tune(config: Tune, say=print) -> TuneResult:
    """Return the best settings, every trial, and the table of the final runs if there are any."""
    from likewise.papers.tune import tune as work

    return work(config, say)
