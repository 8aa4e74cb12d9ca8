"""`likewise apply`: put corrected labels into effect, as a new folder or by moving files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Apply
    from likewise.curate.audit.apply import Applied


def apply(config: Apply, say=print) -> Applied:
    """Apply a corrected table to its images, and return what changed or would change."""
    from likewise.curate.audit.apply import apply as work

    return work(config, say)
