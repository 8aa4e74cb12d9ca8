"""The training loop: everything that happens in one iteration, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from likewise.data.images import BadImage
from likewise.distributed.process_group import anybody
from likewise.errors import LikewiseError
from likewise.io.progress import bar
from likewise.training.interrupts import Interrupted, Saves, leave_cores_for, stop_on_signal
from likewise.training.run_log import RunLog
from likewise.training.state import TrainState
from likewise.training.step import NetworkRunner, step
from likewise.types import Batch


@dataclass(frozen=True)
class Looks:
    """Looks at the whole data that the loop takes between steps: see training/validation.py."""

    relabel: Callable[[], None]
    validate: Callable[[], None]
    test: Callable[[], None]


@dataclass(frozen=True)
class Hooks:
    """Functions for callers who watch or disturb a training from outside; tests do.

    Attributes:
        built: gets the state before a checkpoint is loaded; restored: after that.
        before_step: gets the state and the batch, and returns the batch to train on.
        after_step: gets the state after the step, before anything is logged or saved.
        saved: gets the state after every checkpoint.
    """

    built: Callable[[TrainState], object] = lambda state: None
    restored: Callable[[TrainState], object] = lambda state: None
    before_step: Callable[[TrainState, Batch], Batch] = lambda state, batch: batch
    after_step: Callable[[TrainState], object] = lambda state: None
    saved: Callable[[TrainState], object] = lambda state: None


def loop(
    state: TrainState,
    runner: NetworkRunner,
    feed: Iterator[Batch],
    log: RunLog,
    looks: Looks,
    hooks: Hooks,
    workers: int = 0,
) -> None:
    """Train until the last step, a request to stop, or the end of patience; then save.

    Args:
        feed: the batches from the state's step on.
        workers: processes that read pictures meanwhile, and need cores.
    """
    plan = state.plan
    images, began, saves = 0, time.monotonic(), Saves(plan.checkpoint_every)
    progress_bar = bar("train", plan.steps, start=state.step, quiet=state.config.quiet)
    with stop_on_signal() as stop, leave_cores_for(workers, state.device), progress_bar as progress:
        while state.step < plan.steps and not state.out_of_patience():
            if plan.relabel_every and state.step % plan.relabel_every == 0:
                looks.relabel()
            batch = hooks.before_step(state, next_batch(feed, state, log))
            step(state, runner, batch)
            hooks.after_step(state)
            images += len(batch.row)
            last, pass_ends = state.step == plan.steps, state.step % plan.per_pass == 0
            if state.step % plan.log_every == 0 or last:
                rate = images / max(time.monotonic() - began, 1e-9)
                log.log_step(state, runner.known_mode, runner.milliseconds, rate)
                images, began = 0, time.monotonic()
            if state.components.confidence and (pass_ends or last):
                log.log_suspicion(state)
            if state.history and pass_ends:
                state.history.end_pass(state.step)
            progress.advance(1, log.shown)
            if len(state.samples.val_rows) and (state.step % plan.validate_every == 0 or last):
                looks.validate()
            if plan.test_every and (state.step % plan.test_every == 0 or last):
                looks.test()
            due, stopped = anybody(saves.due(state.step), stop.is_set())
            if (due or stopped) and not last:
                with saves:
                    log.save(state)
                hooks.saved(state)
            if stopped and not last:
                raise Interrupted(log.run, state.step, plan.steps)
    if state.history:
        state.history.end_pass(state.step)  # the last pass may be cut short
    log.save(state)
    hooks.saved(state)
    if state.components.confidence:
        log.save_sample_weights(state)


def next_batch(feed: Iterator[Batch], state: TrainState, log: RunLog) -> Batch:
    """Return the next batch; if a picture is broken, save what was learned so far and raise."""
    try:
        return next(feed)
    except LikewiseError as error:
        if state.processes == 1:  # other processes are in the middle of a step and cannot take part in saving
            log.save(state)
        hint = "; --skip-bad leaves such pictures out" if isinstance(error, BadImage) else ""
        raise LikewiseError(f"{error}. Training stopped at step {state.step}{hint}") from None
