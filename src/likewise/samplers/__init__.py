"""Batch samplers: which rows make a batch. `__all__` is the registry."""

from likewise.samplers.distance_matching import DistanceMatching
from likewise.samplers.frechet_matching import FrechetMatching
from likewise.samplers.greedy_coreset import GreedyCoreset
from likewise.samplers.samples_per_class import SamplesPerClass
from likewise.samplers.samples_random import SamplesRandom
from likewise.samplers.shuffled import Shuffled

__all__ = ["DistanceMatching", "FrechetMatching", "GreedyCoreset", "SamplesPerClass", "SamplesRandom", "Shuffled"]
