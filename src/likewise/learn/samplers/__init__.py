"""Batch samplers: choose the rows of every batch. The classes imported here are the registry."""

from likewise.learn.samplers.anchor_neighbours import AnchorNeighbours as AnchorNeighbours
from likewise.learn.samplers.clustered import Clustered as Clustered
from likewise.learn.samplers.distance_matching import DistanceMatching as DistanceMatching
from likewise.learn.samplers.frechet_matching import FrechetMatching as FrechetMatching
from likewise.learn.samplers.greedy_coreset import GreedyCoreset as GreedyCoreset
from likewise.learn.samplers.related_samples import RelatedSamples as RelatedSamples
from likewise.learn.samplers.samples_per_class import SamplesPerClass as SamplesPerClass
from likewise.learn.samplers.samples_per_label import SamplesPerLabel as SamplesPerLabel
from likewise.learn.samplers.samples_random import SamplesRandom as SamplesRandom
from likewise.learn.samplers.shuffled import Shuffled as Shuffled

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
