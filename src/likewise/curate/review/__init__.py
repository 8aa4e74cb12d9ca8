"""The page where people decide about labels and pairs: items shown, decisions stored, consensus, the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.errors import print_text
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
    from likewise.curate.review.serve import serve_review  # needs an extra of likewise

    return serve_review(config, say)


def show_reviewed(found: Reviewed | Proved, config: Review) -> None:
    """Print the decisions and the corrected table, or what came true of the forecast."""
    print_text(f"\nreview: {found}")
