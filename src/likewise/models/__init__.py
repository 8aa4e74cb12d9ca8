"""Networks: backbone, pooling, head. The heads available to specs are in `likewise.models.heads`."""

from likewise.models.embedder import Embedder

__all__ = ["Embedder"]
