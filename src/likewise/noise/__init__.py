"""Noise models: spoil labels on purpose, to measure what wrong labels do. `__all__` is the registry."""

from likewise.noise.uniform import Uniform

__all__ = ["Uniform"]
