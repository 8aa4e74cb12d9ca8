"""`likewise compare`: whether run B retrieves better than run A."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Compare
    from likewise.render.results import Compared


def compare(config: Compare, say=print) -> Compared:
    """Return the differences between two evaluated runs, or between two runs on the data of `config.on`, with intervals."""
    from likewise.evaluation.compare import compare as work
    from likewise.render.results import Compared

    return Compared(work(config, say))
