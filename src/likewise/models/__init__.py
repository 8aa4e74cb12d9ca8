"""Networks: backbone, pooling, head. The heads that a spec may name are in `likewise.models.heads`."""

from likewise.models.embedder import Embedder

__all__ = ["Embedder"]
