"""Relevance of samples to each other, in place of equal labels. The classes imported here are the registry."""

from likewise.relevance.given_values import GivenValues as GivenValues
from likewise.relevance.shared_labels import SharedLabels as SharedLabels
from likewise.relevance.tree_depth import TreeDepth as TreeDepth

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
