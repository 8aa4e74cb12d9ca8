"""`likewise embed`: turn data into embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Embed
    from likewise.core.types import Embedded


def embed(config: Embed, say=print) -> Embedded:
    """Return the embeddings of all rows of the data, and write them to `config.out` if that is not empty."""
    from likewise.score.embed_data import embed as work

    return work(config, say)
