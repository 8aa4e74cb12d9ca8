"""Batch samplers: which rows make a batch. `__all__` is the registry."""

from likewise.samplers.samples_per_class import SamplesPerClass
from likewise.samplers.shuffled import Shuffled

__all__ = ["SamplesPerClass", "Shuffled"]
