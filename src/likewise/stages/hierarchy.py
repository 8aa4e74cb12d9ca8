"""`likewise hierarchy`: the tree of a run's training classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Hierarchy
    from likewise.render.hierarchy import LearnedHierarchy


def hierarchy(config: Hierarchy, say=print) -> LearnedHierarchy:
    """Return the clusters of the training classes, level by level, and their agreement with the known taxonomy."""
    from likewise.evaluation.hierarchy import hierarchy as work

    return work(config, say)
