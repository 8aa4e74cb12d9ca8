"""Metrics. Per query, from one ranked pass: `metric("R@10")`. Of a whole set of embeddings: `set_metric("rho")`."""

from likewise.metrics.ranking import NAMES, metric
from likewise.metrics.spectrum import NAMES as SET_NAMES
from likewise.metrics.spectrum import class_spectrum, density, of_the_set, set_metric, spectral_decay

__all__ = ["NAMES", "SET_NAMES", "class_spectrum", "density", "metric", "of_the_set", "set_metric", "spectral_decay"]
