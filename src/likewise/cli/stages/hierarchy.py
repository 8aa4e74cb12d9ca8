"""`likewise hierarchy`: the tree of a run's training classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Hierarchy
    from likewise.score.learned_hierarchy import LearnedHierarchy


def hierarchy(config: Hierarchy, say=print) -> LearnedHierarchy:
    """Return the clusters of the training classes, level by level, and their agreement with the known taxonomy."""
    from likewise.score.learned_hierarchy import hierarchy as work

    return work(config, say)
