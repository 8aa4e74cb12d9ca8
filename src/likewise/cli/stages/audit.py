"""`likewise audit`: labels that are probably wrong, test errors and their causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Audit
    from likewise.curate.audit.audit import Audited
    from likewise.score.error_overlap import ErrorOverlap


def audit(config: Audit, say=print) -> Audited | ErrorOverlap:
    """Return the findings about a run or embeddings; with `overlap`, the classes with most errors of several runs."""
    if config.overlap:
        from likewise.score.error_overlap import overlap

        return overlap(config, say)
    from likewise.curate.audit.audit import audit as work

    return work(config, say)
