"""`likewise receive`: decisions, vectors or labels from another tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Receive
    from likewise.curate.exchange.transfer import Received


def receive(config: Receive, say=print) -> Received:
    """Receive rows of another tool; return what they are, their number, and where they are stored."""
    from likewise.curate.exchange.transfer import receive as work

    return work(config)
