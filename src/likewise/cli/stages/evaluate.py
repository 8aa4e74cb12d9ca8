"""`likewise evaluate`: scores of a run, of a file of embeddings, or of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Evaluate
    from likewise.score.result_views import Scored


def evaluate(config: Evaluate, say=print) -> Scored:
    """Return the scores of the run or the file that the config names."""
    from likewise.score.evaluate import evaluate as score
    from likewise.score.result_views import Scored

    return Scored(score(config, say))


def evaluate_arrays(config: Evaluate, z, y, relevance=None) -> Scored:
    """Return the scores of embeddings (N, D) with their N labels or sets of labels; `config.target` only names them."""
    from likewise.score.evaluate_arrays import evaluate_arrays as score
    from likewise.score.result_views import Scored

    return Scored(score(config, z, y, relevance))
