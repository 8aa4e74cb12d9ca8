"""`likewise send`: rows to another tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Send
    from likewise.curate.exchange.transfer import Sent


def send(config: Send, say=print) -> Sent:
    """Send the rows of an audit, a run, embeddings or data; return the number of rows and where they are."""
    from likewise.curate.exchange.transfer import send as work

    return work(config)
