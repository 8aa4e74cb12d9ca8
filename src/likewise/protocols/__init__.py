"""Protocols: which rows train and test, who asks and who may answer. `__all__` is the registry."""

from likewise.protocols.class_folds import ClassFolds
from likewise.protocols.query_gallery import QueryGallery
from likewise.protocols.seen_classes import SeenClasses
from likewise.protocols.unseen_classes import UnseenClasses

__all__ = ["ClassFolds", "QueryGallery", "SeenClasses", "UnseenClasses"]
