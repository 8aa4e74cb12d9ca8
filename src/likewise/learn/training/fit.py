"""Train a run from its settings: load the data, find the run folder, train or resume, evaluate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from likewise.core.devices import choose_device
from likewise.core.distributed.process_group import joined, wait_for_all, world
from likewise.core.errors import LikewiseError, memory_errors
from likewise.core.settings import Evaluate, Train
from likewise.data.dataset import is_strict, make_protocol, training_items
from likewise.learn.training.defaults import check_settings, claim_run, describe_folds, find_backbone, resolve_with
from likewise.learn.training.execute import execute
from likewise.learn.training.launch import is_started, launch
from likewise.learn.training.logger_dispatch import LoggerDispatch, make_loggers
from likewise.learn.training.loop import Hooks
from likewise.learn.training.run_log import RunLog
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.usage import Session
from likewise.score.evaluate import evaluate_run

LESS_MEMORY = "lower the sampler's batch, --size or --dim, or give --chunk-size"


def train(config: Train, say: Callable[[str], None] = print, hooks: Hooks = Hooks()) -> Run:
    """Train the run of these settings, evaluate it and return it. A run that was interrupted is resumed; a finished run is kept.

    Args:
        hooks: functions that this process calls during training.
    """
    check_settings(config)
    if config.gpus and config.gpus > 1 and not is_started():
        return launch(config, "likewise.learn.training.fit:train", say)
    with joined(choose_device(config.device)) as device:
        rank, processes = world()
        if config.gpus and config.gpus != processes:
            raise LikewiseError(
                f"train: --gpus must match the number of started processes, got --gpus {config.gpus} and {processes} processes; "
                "drop --gpus"
            )
        with memory_errors("train", LESS_MEMORY):
            return train_here(config, device, say if rank == 0 else lambda line: None, hooks, first=rank == 0)


def train_here(config: Train, device: torch.device, say: Callable[[str], None], hooks: Hooks, first: bool) -> Run:
    """Train in this process, which may be one of several. Only the first process writes into the run folder."""
    config = config if first else replace(config, quiet=True)
    loggers = make_loggers(config)  # first: a missing package must be reported before the data is read
    config, found = replace(config, strict=is_strict(config)), find_backbone(config)
    items = training_items(config, say)
    if sentence := describe_folds(config):
        say(sentence)
    default_sampler, (config, choice) = config.sampler is None, resolve_with(config, items, found)
    if config.evaluate and not make_protocol(config).has_test_split:
        say("the protocol assigns all classes to training, so there is no test split to score")
        config = replace(config, evaluate=False)
    claim = claim_run(config, items, choice, say)
    run, pixels = claim.run, None
    with LoggerDispatch(run, config, loggers if first else {}, say) as dispatch:
        session = Session(run, device)
        if run.done and not config.restart:
            say(f"this run is finished already: {run.path} (--restart trains it again)")
            if config.record_losses and run.losses() is None:
                say("it was trained without --record-losses; --restart trains it again and records the losses")
        else:
            log = RunLog(run, session, dispatch, writes=first)
            pixels = execute(claim, config, items, device, log, hooks, say, default_sampler)
        if config.evaluate and (run.scores is None or set(config.metrics) - run.scores["metrics"].keys()):
            with session.evaluating():
                how = {"workers": config.workers, "quiet": config.quiet, "settings": config, "items": items}
                evaluate_run(
                    OpenRun(run, device=device, **how), Evaluate(str(run.path), metrics=config.metrics), pixels
                )
            wait_for_all()  # then every process can read the scores that the first process wrote
    return run
