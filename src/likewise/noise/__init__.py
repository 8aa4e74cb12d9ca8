"""Noise models: spoil labels on purpose, to measure what wrong labels do. `__all__` is the registry."""

from likewise.noise.class_frequency import ClassFrequency
from likewise.noise.class_shift import ClassShift
from likewise.noise.semantic import Semantic
from likewise.noise.small_cluster import SmallCluster
from likewise.noise.uniform import Uniform

__all__ = ["ClassFrequency", "ClassShift", "Semantic", "SmallCluster", "Uniform"]
