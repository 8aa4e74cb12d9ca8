"""Noise models: they inject wrong labels on purpose, to measure the effect. The classes imported here are the registry."""

from likewise.data.noise.add_labels import AddLabels as AddLabels
from likewise.data.noise.class_frequency import ClassFrequency as ClassFrequency
from likewise.data.noise.class_shift import ClassShift as ClassShift
from likewise.data.noise.drop_labels import DropLabels as DropLabels
from likewise.data.noise.semantic import Semantic as Semantic
from likewise.data.noise.small_cluster import SmallCluster as SmallCluster
from likewise.data.noise.uniform import Uniform as Uniform

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
