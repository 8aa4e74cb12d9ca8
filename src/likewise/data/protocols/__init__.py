"""Protocols: they assign rows to splits, and test rows to query and gallery. The classes imported here are the registry."""

from likewise.data.protocols.class_folds import ClassFolds as ClassFolds
from likewise.data.protocols.query_gallery import QueryGallery as QueryGallery
from likewise.data.protocols.seen_classes import SeenClasses as SeenClasses
from likewise.data.protocols.stratified_labels import StratifiedLabels as StratifiedLabels
from likewise.data.protocols.unseen_classes import UnseenClasses as UnseenClasses
from likewise.data.protocols.unseen_labels import UnseenLabels as UnseenLabels

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
