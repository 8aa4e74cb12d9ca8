"""Protocols: which rows train and test, who asks and who may answer. `__all__` is the registry."""

from likewise.protocols.query_gallery import QueryGallery
from likewise.protocols.unseen_classes import UnseenClasses

__all__ = ["QueryGallery", "UnseenClasses"]
