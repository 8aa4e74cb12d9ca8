"""Check of the threshold that separates positives from negatives."""

from __future__ import annotations

from likewise.core.types import LikewiseError


def check_threshold(owner: str, threshold: float) -> None:
    """Raise unless the threshold is above 0 and at most 1: at 0 every pair would be positive."""
    if not 0 < threshold <= 1:
        raise LikewiseError(f"{owner}: threshold must be above 0 and at most 1, got {threshold:g}")
