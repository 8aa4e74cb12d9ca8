"""`likewise embed`: turn data into embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Embed
    from likewise.types import Embedded


def embed(config: Embed, say=print) -> Embedded:
    """Return the embeddings of all rows of the data, and write them to `config.out` if that is not empty."""
    from likewise.evaluation.embed_data import embed as work

    return work(config, say)
