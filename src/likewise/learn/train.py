"""train: train a run and evaluate it, before training and after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from likewise.core.errors import print_text
from likewise.core.settings import Train

if TYPE_CHECKING:
    from likewise.runs.folder import Run


def train(config: Train, say=print) -> Run:
    """Train the run of these settings, resume it or return the finished run, and evaluate it.

    If the network started from pretrained weights, scores.json also has the scores of the baseline before training. A finished
    run drops the state that only a resume needs: a longer training has another identity, and thus another folder.
    """
    from likewise.core.devices import start_device

    in_one_process = not config.gpus or config.gpus == 1
    device_thread = start_device(config.device, config.precision == "bf16") if in_one_process else None
    from likewise.learn.training.fit import train as fit  # slow to import: the device starts in the meantime
    from likewise.learn.training.loop import Hooks

    hooks = Hooks(restored=lambda state: device_thread and device_thread.join())
    run, is_first = fit(config, say, hooks), os.environ.get("RANK", "0") == "0"
    if config.evaluate and run.scores is not None and is_first:
        from likewise.score.baseline import add_baseline  # after training: it imports matplotlib

        add_baseline(run, config, say)
    if run.done and is_first:
        (run.path / "state.pt").unlink(missing_ok=True)
    return run


def sentences(run: Run) -> list[str]:
    """Return sentences about a finished run: its baseline, a warning if that was better, and the number of flagged labels."""
    from likewise.runs.training_files import describe_flagged
    from likewise.score.baseline import about_baseline, worse_than_baseline

    if run.scores is None:
        return []
    about = about_baseline(run.scores, run.about["config"])
    return [line for line in (about, worse_than_baseline(run.scores), describe_flagged(run.path)) if line]


def show_training(run: Run, config: Train) -> None:
    """Print the scores before and after training, sentences about the run, and its folder; nothing with --quiet."""
    from likewise.score.score_table import by_gallery, show_scores

    if config.quiet:
        return
    if config.evaluate and (scores := run.scores) is not None:
        before = {"before training": scores | scores["before"]} if "before" in scores else {}
        show_scores(before | by_gallery("after training" if before else "test split", scores), run.path)
        for line in sentences(run):
            print_text(line)
    print_text(f"run: {run.path}")
