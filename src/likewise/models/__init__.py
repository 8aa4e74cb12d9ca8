"""Networks that turn pictures into embeddings. Heads, as parts of a spec, are listed in `likewise.models.heads`."""

from likewise.models.embedder import Embedder

__all__ = ["Embedder"]
