"""Losses: (z, y) -> one number per sample. `__all__` is the registry."""

from likewise.losses.contrastive import Contrastive
from likewise.losses.multi_similarity import MultiSimilarity
from likewise.losses.norm_softmax import NormSoftmax
from likewise.losses.proxy_anchor import ProxyAnchor
from likewise.losses.triplet import Triplet

__all__ = ["Contrastive", "MultiSimilarity", "NormSoftmax", "ProxyAnchor", "Triplet"]
