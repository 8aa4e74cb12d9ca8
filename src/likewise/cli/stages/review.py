"""`likewise review`: serve the page on which people review the findings of an audit, or train again with their decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.settings import Review, check

if TYPE_CHECKING:
    from likewise.curate.review.prove import Proved
    from likewise.curate.review.serve import Reviewed


def review(config: Review, say=print) -> Reviewed | Proved:
    """Serve the page until people finish it or Ctrl-C; return the number of decisions and the corrected table.

    With `retrain`, serve no page, and return what came true of the forecast.
    """
    check(config)
    if config.retrain:
        from likewise.curate.review.prove import prove

        return prove(config, say)
    from likewise.curate.review.serve import serve_review

    return serve_review(config, say)
