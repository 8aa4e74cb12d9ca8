"""`likewise train`: train an embedding and evaluate it, before training and after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Train
    from likewise.runs.folder import Run


def train(config: Train, say=print) -> Run:
    """Train, finish or find the run that the settings describe, and evaluate it.

    Where the network began with weights that others trained, scores.json also has its scores before training.
    """
    from likewise.evaluation.baseline import add_before
    from likewise.training.fit import train as fit

    run = fit(config, say)
    if config.evaluate and run.scores is not None and os.environ.get("RANK", "0") == "0":
        add_before(run, config, say)
    return run


def sentences(run: Run) -> list[str]:
    """Return what a user should know about a finished run: that training made it worse, which labels were flagged."""
    from likewise.evaluation.baseline import say_loss
    from likewise.report.label_trust import say_doubts

    return [line for line in (say_loss(run.scores), say_doubts(run)) if line] if run.scores is not None else []
