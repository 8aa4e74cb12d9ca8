"""The page where people decide about labels and pairs.

A request reaches `review_page`, which reads and appends decisions in `store`, shows `items` in the order of the `plan`, and
writes what the decisions of all reviewers come to (`consensus`); `prove` compares it with the forecast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.errors import print_text
from likewise.core.settings import Review, check

if TYPE_CHECKING:
    from likewise.curate.review.prove import Proved
    from likewise.curate.review.review_page import Reviewed


def review(config: Review, say=print) -> Reviewed | Proved:
    """Serve the page until people finish it or Ctrl-C; return the number of decisions and the corrected table.

    With `retrain`, serve no page, and return what came true of the forecast.
    """
    check(config)
    if config.retrain:
        from likewise.curate.review.prove import prove

        return prove(config, say)
    from likewise.curate.review.review_page import serve_review  # needs an extra of likewise

    return serve_review(config, say)


def show_reviewed(found: Reviewed | Proved, config: Review) -> None:
    """Print the decisions and the corrected table, or what came true of the forecast."""
    print_text(f"\nreview: {found}")
