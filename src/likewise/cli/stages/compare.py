"""`likewise compare`: whether run B retrieves better than run A."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Compare
    from likewise.score.result_views import Compared


def compare(config: Compare, say=print) -> Compared:
    """Return the differences between two evaluated runs, or between two runs on the data of `config.on`, with intervals."""
    from likewise.score.compare import compare as work
    from likewise.score.result_views import Compared

    return Compared(work(config, say))
