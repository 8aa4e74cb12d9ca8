"""Relevance of samples to each other, in place of equal labels. The classes imported here are the registry."""

from likewise.data.relevance.given_values import GivenValues as GivenValues
from likewise.data.relevance.judged_pairs import JudgedPairs as JudgedPairs
from likewise.data.relevance.judged_triplets import JudgedTriplets as JudgedTriplets
from likewise.data.relevance.listed_pairs import ListedPairs as ListedPairs
from likewise.data.relevance.shared_labels import SharedLabels as SharedLabels
from likewise.data.relevance.tree_depth import TreeDepth as TreeDepth

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
