"""`likewise review`: serve the page on which people review the findings of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.config import Review, check

if TYPE_CHECKING:
    from likewise.web.review.serve import Reviewed


def review(config: Review, say=print) -> Reviewed:
    """Serve the page until people finish it or Ctrl-C; return the number of decisions and the corrected table."""
    check(config)
    from likewise.web.review.serve import serve_review

    return serve_review(config, say)
