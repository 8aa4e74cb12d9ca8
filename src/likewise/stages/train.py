"""`likewise train`: train an embedding and evaluate it, before training and after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Train
    from likewise.runs.folder import Run


def train(config: Train, say=print) -> Run:
    """Train the run of these settings, resume it or return the finished run, and evaluate it.

    If the network started from pretrained weights, scores.json also has the scores of the baseline before training. A finished
    run drops the state that only a resume needs: a longer training has another identity, and thus another folder.
    """
    from likewise.evaluation.baseline import add_baseline
    from likewise.training.fit import train as fit

    run, is_first = fit(config, say), os.environ.get("RANK", "0") == "0"
    if config.evaluate and run.scores is not None and is_first:
        add_baseline(run, config, say)
    if run.done and is_first:
        (run.path / "state.pt").unlink(missing_ok=True)
    return run


def sentences(run: Run) -> list[str]:
    """Return sentences about a finished run: a warning if training made it worse, and the number of flagged labels."""
    from likewise.evaluation.baseline import worse_than_baseline
    from likewise.report.label_noise import describe_flagged

    return (
        [line for line in (worse_than_baseline(run.scores), describe_flagged(run)) if line]
        if run.scores is not None
        else []
    )
