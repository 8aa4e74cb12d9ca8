"""Metrics: one number per query from one ranked pass. `metric("R@10")` makes one by its name."""

from likewise.metrics.ranking import NAMES, metric

__all__ = ["NAMES", "metric"]
