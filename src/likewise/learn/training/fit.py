"""Train a run from its settings: load the data, find the run folder, train or resume, evaluate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from likewise.core.devices import choose_device
from likewise.core.distributed.process_group import first_process_first, joined, wait_for_all, world
from likewise.core.errors import LikewiseError, memory_errors
from likewise.core.settings import Evaluate, Train
from likewise.core.types import Items
from likewise.data.dataset import is_strict, make_protocol, training_items
from likewise.data.decoded_cache import Pixels
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import (
    check_settings,
    claim_run,
    describe_folds,
    find_backbone,
    resolve_with,
    with_possible_batch,
)
from likewise.learn.training.inputs import (
    fit_heads,
    open_inputs,
    prepare_terms,
    relabel,
    score_test,
    start_sampler,
    training_batches,
    validate,
)  # fmt: skip
from likewise.learn.training.launch import is_started, launch
from likewise.learn.training.loop import Hooks, PeriodicWork, loop, with_estimate
from likewise.learn.training.run_log import LoggerDispatch, RunLog, make_loggers
from likewise.learn.training.step import NetworkRunner
from likewise.runs.folder import Run
from likewise.runs.identity import Claim, cleared_after_failure, prepare_folder
from likewise.runs.open import OpenRun
from likewise.runs.training_files import write_trained
from likewise.runs.usage import Session
from likewise.score.checks import check_plan
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
    given, (config, choice) = config, resolve_with(config, items, found)
    config, sentence = with_possible_batch(config, given, items)
    if sentence:
        say(sentence)
    if config.evaluate and not make_protocol(config).has_test_split:
        say("--protocol assigns all classes to training, so there is no test split to score")
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
            pixels = execute(claim, config, items, device, log, hooks, say, given.sampler is None)
        if config.evaluate and (run.scores is None or set(config.metrics) - run.scores["metrics"].keys()):
            with session.evaluating():
                how = {"workers": config.workers, "quiet": config.quiet, "settings": config, "items": items}
                evaluate_run(
                    OpenRun(run, device=device, **how), Evaluate(str(run.path), metrics=config.metrics), pixels
                )
            wait_for_all()  # then every process can read the scores that the first process wrote
    return run


def execute(
    claim: Claim,
    config: Train,
    items: Items,
    device: torch.device,
    log: RunLog,
    hooks: Hooks,
    say: Callable[[str], None],
    default_sampler: bool = False,
) -> Pixels | None:
    """Train to the end, from the last checkpoint if there is one. Returns the decoded images, for evaluation to reuse.

    Args:
        default_sampler: the sampler is the default one, so report the classes that it skips.
    """
    run, first = claim.run, log.writes
    samples = make_samples(config, items, device)
    check_plan(config, items, samples.protocol)
    state = build_state(config, samples, device, *world())  # before the folder: bad settings must not leave one behind
    hooks.built(state)
    skips_single = default_sampler and (config.sampler or "").startswith("SamplesPerClass(")
    if skips_single and (sentence := samples.describe_single_classes()):
        say(sentence)
    if (relevance := state.components.loss.relevance) is not None and relevance.note:
        say(relevance.note)
    with cleared_after_failure(run, first, lambda: state.step > 0), run.owned() if first else nullcontext():
        wait_for_all()  # no process reads the folder while the first one fills it
        if first:
            prepare_folder(claim, config, device)
            write_trained(run.path, items, np.union1d(samples.rows, samples.val_rows))
        wait_for_all()
        inputs = open_inputs(state, say)
        fit_heads(state, inputs)
        first_process_first(lambda: prepare_terms(state, inputs, run))
        log.restore(state)
        hooks.restored(state)
        runner, hooks = NetworkRunner(state, say), with_estimate(hooks, state, say)
        start_sampler(state, inputs)
        periodic = PeriodicWork(*(partial(work, state, inputs, log) for work in (relabel, validate, score_test)))
        loop(state, runner, training_batches(state, inputs), log, periodic, hooks, inputs.workers(state))
        if first:
            run.finish()
        wait_for_all()
    return inputs.held and inputs.held.pixels
