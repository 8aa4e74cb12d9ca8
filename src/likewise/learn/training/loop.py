"""The training loop: step, log, validate, save, in this order; stop signals, checkpoint intervals, an estimate of its time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Num
from torch import Tensor

from likewise.core.devices import wait_for_device
from likewise.core.distributed.process_group import any_process
from likewise.core.durations import seconds_of
from likewise.core.errors import LikewiseError
from likewise.core.progress import bar
from likewise.core.settings import Train
from likewise.core.types import Batch
from likewise.data import NAMES
from likewise.data.images import BadImage
from likewise.learn.training.run_log import RunLog
from likewise.learn.training.state import TrainState
from likewise.learn.training.step import NetworkRunner, step
from likewise.runs.folder import Run


@dataclass(frozen=True)
class PeriodicWork:
    """Work on whole splits that the loop does between steps, every few steps or epochs (learn/training/inputs.py)."""

    relabel: Callable[[], None]
    validate: Callable[[], None]
    test: Callable[[], None]


@dataclass(frozen=True)
class Hooks:
    """Functions that a caller, such as a test, can pass to observe or change a training.

    Attributes:
        built: gets the state before a checkpoint is loaded.
        restored: gets the state after a checkpoint was loaded.
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
    periodic: PeriodicWork,
    hooks: Hooks,
    workers: int = 0,
) -> None:
    """Train until the last step, a stop signal, or the end of patience; then save.

    Args:
        feed: the batches from `state.step` on.
        workers: processes that read images during training and need cores.
    """
    plan = state.plan
    images, began, timer = 0, time.monotonic(), CheckpointTimer(plan.checkpoint_every)
    progress_bar = bar("train", plan.steps, start=state.step, quiet=state.config.quiet)
    with stop_on_signal() as stop, leave_cores_for(workers, state.device), progress_bar as progress:
        while state.step < plan.steps and not state.out_of_patience():
            if plan.relabel_every and state.step % plan.relabel_every == 0:
                periodic.relabel()
            batch = hooks.before_step(state, next_batch(feed, state, log))
            step(state, runner, batch)
            hooks.after_step(state)
            images += len(batch.row)
            last, epoch_ends = state.step == plan.steps, state.step % plan.steps_per_epoch == 0
            if state.step % plan.log_every == 0 or last:
                rate = images / max(time.monotonic() - began, 1e-9)
                log.log_step(state, runner.known_mode, runner.milliseconds, rate)
                images, began = 0, time.monotonic()
            if state.components.confidence and (epoch_ends or last):
                log.log_suspicion(state)
            if state.history and epoch_ends:
                state.history.end_epoch(state.step)
            progress.advance(1, log.shown)
            if len(state.samples.val_rows) and (state.step % plan.validate_every == 0 or last):
                periodic.validate()
            if plan.test_every and (state.step % plan.test_every == 0 or last):
                periodic.test()
            due, stopped = any_process(timer.due(state.step), stop.is_set())
            if (due or stopped) and not last:
                with timer:
                    log.save(state)
                hooks.saved(state)
            if stopped and not last:
                raise Interrupted(log.run, state.step, plan.steps)
    if state.history:
        state.history.end_epoch(state.step)  # the last epoch may be incomplete
    log.save(state)
    hooks.saved(state)
    if state.components.confidence:
        log.save_sample_weights(state)


def next_batch(feed: Iterator[Batch], state: TrainState, log: RunLog) -> Batch:
    """Return the next batch; if an image cannot be read, save a checkpoint and raise."""
    try:
        return next(feed)
    except LikewiseError as error:
        if state.processes == 1:  # other processes are in the middle of a step and cannot take part in saving
            log.save(state)
        hint = "; all images could be decoded when it started. Restore the file; the same command resumes the training"
        raise LikewiseError(
            f"{error}. Training stopped at step {state.step}{hint if isinstance(error, BadImage) else ''}"
        ) from None


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; its checkpoint is saved, and the same call resumes it."""

    def __init__(self, run: Run, step: int, steps: int):
        super().__init__(f"stopped at step {step} of {steps}; run the same command to resume ({run.path})")


@contextmanager
def leave_cores_for(workers: int, device: torch.device) -> Iterator[None]:
    """Reduce torch's threads on a CPU by the number of reading processes, so that they do not compete for cores."""
    before = torch.get_num_threads()
    if device.type == "cpu" and workers:
        torch.set_num_threads(max(1, before - workers))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class StopHandler:
    """Signal handler that sets the event `stop`; a second Ctrl-C raises KeyboardInterrupt.

    A parent may forward a Ctrl-C as SIGTERM, so a SIGTERM after a Ctrl-C does not count as a second request.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()

    def __call__(self, number: int, frame: object) -> None:
        if self.stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == signal.SIGINT and sys.stderr.isatty():
            # not print: a signal may arrive in the middle of another print, which raises an error
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        self.stop.set()


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and SIGHUP (closed terminal) set; a second Ctrl-C raises KeyboardInterrupt.

    An ignored SIGHUP (nohup) stays ignored.
    """
    handler = StopHandler()
    if threading.current_thread() is not threading.main_thread():
        yield handler.stop
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield handler.stop
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def request_stop() -> bool:
    """Set the event of the innermost active `stop_on_signal`, and return whether there is one."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, StopHandler):
        handler.stop.set()
        return True
    return False


class CheckpointTimer:
    """Decides when a checkpoint is due: every `every` steps (int), or by time ("30s").

    By time, the interval grows so that saving takes at most 5 % of the time. Use it as a context around saving.
    """

    def __init__(self, every: int | str):
        self.every, self.took = every, 0.0
        self.last = self.began = time.monotonic()

    def due(self, step: int) -> bool:
        if isinstance(self.every, int):
            return step % self.every == 0
        return time.monotonic() - self.last >= max(seconds_of(self.every) or 0.0, 20 * self.took)

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_) -> None:
        self.last = time.monotonic()
        self.took = self.last - self.began


SHORT_SECONDS, LONG_SECONDS = 5.0, 600.0
"""Time of a training, in seconds, from which it is estimated, and from which something faster is suggested."""
MEASURED_IMAGES = 8
"""Images of the first batch whose forward and backward pass is timed."""
TIMED_PASSES = 3
"""Passes of these images that are timed, after one that is not; the fastest counts, because others may use the cores too."""
FIRST_STEPS = 5
"""Steps on features that are not timed: they allocate memory and start threads."""
MEASURED_SECONDS = 0.5
"""Time of the steps on features that are timed: a few milliseconds each, so that two of them would be too few."""
SMALL_SIZE = 128
"""Side of the images that is suggested, in pixels."""


class StepTimer:
    """Times the steps of a training after the first ones, until `MEASURED_SECONDS` have passed.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.steps, self.began, self.known = clock, 0, 0.0, False

    def after_step(self) -> float | None:
        """Count a step, and return the seconds per step: once, when they are known."""
        if self.known:
            return None
        self.steps += 1
        if self.steps == FIRST_STEPS:
            self.began = self.clock()
        if self.steps <= FIRST_STEPS:
            return None
        took = self.clock() - self.began
        self.known = took >= MEASURED_SECONDS
        return took / (self.steps - FIRST_STEPS) if self.known else None


def with_estimate(
    hooks: Hooks, state: TrainState, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Hooks:
    """Return the hooks, extended by the estimate, if the training shows its progress. It changes no training.

    On a CPU the estimate comes before the first step, from a few images. On a GPU, on features and with several processes it
    comes after half a second of steps.

    Args:
        clock: returns the time in seconds.
    """
    config, timer, estimated = state.config, StepTimer(clock), []
    if config.quiet:
        return hooks
    on_cpu = state.device.type == "cpu"

    def say_estimate(now: TrainState, seconds_per_step: float) -> None:
        steps, size = now.plan.steps - now.step, config.size or now.components.embedder.input_size
        if sentence := describe_time(config, seconds_per_step * steps, steps, size, on_cpu):
            say(sentence)

    def before_step(now: TrainState, batch: Batch) -> Batch:
        if not estimated:
            estimated.append(True)
            say_estimate(now, seconds_per_image(now, batch.x[:MEASURED_IMAGES], clock) * len(batch.x))
        return hooks.before_step(now, batch)

    def after_step(now: TrainState) -> None:
        hooks.after_step(now)
        if not timer.known:
            wait_for_device(state.device)
        if (seconds := timer.after_step()) is not None:
            say_estimate(now, seconds)

    if state.samples.features is not None or state.processes > 1 or not on_cpu:
        return replace(hooks, after_step=after_step)
    return replace(hooks, before_step=before_step)


def seconds_per_image(state: TrainState, x: Num[Tensor, "n ..."], clock: Callable[[], float]) -> float:
    """Return the time of a forward and a backward pass of the networks for an image; nothing of the training changes.

    The first pass is not timed, because it allocates memory. The loss and the optimiser take little time beside a network that
    reads images.
    """
    embedders, times = state.components.embedders, []
    buffers = [(buffer, buffer.clone()) for embedder in embedders for buffer in embedder.buffers()]
    with (
        torch.random.fork_rng(devices=[]),
        torch.autocast("cpu", torch.bfloat16, enabled=state.config.precision == "bf16"),
    ):
        for _ in range(1 + TIMED_PASSES):
            began = clock()
            for embedder in embedders:
                e = embedder(x).e
                if e.requires_grad:
                    e.sum().backward()
                embedder.zero_grad(set_to_none=True)
            times.append(clock() - began)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    return min(times[1:]) / len(x)


def describe_time(config: Train, seconds: float, steps: int, size: int | None, on_cpu: bool = True) -> str:
    """Return a sentence about the time of a training, with faster settings if it is long; "" if it is short.

    Args:
        seconds: time until the last step.
        steps: number of steps until then.
        size: side of the images in pixels; None for features.
        on_cpu: whether a CPU trains; otherwise a GPU, whose first steps were timed.
    """
    if seconds < SHORT_SECONDS:
        return ""
    where = "CPU" if on_cpu else "GPU (by the time of its first steps)"
    about = f"about {in_words(seconds)} on this {where} for {steps:,} step{'s' * (steps != 1)}"
    if seconds < LONG_SECONDS:
        return about
    if size is None:
        return f"{about}; faster: fewer --epochs"
    faster = []
    if size > SMALL_SIZE:
        faster = [f"--size {SMALL_SIZE} (about {in_words(seconds * (SMALL_SIZE / size) ** 2)})"]
    root = f" --root {config.root}" if config.root and config.data in NAMES else ""
    embed = f"likewise embed {config.backbone} {config.data}{root} --layer feature --out features.npz"
    faster += [f"or train a head on features: {embed}; likewise train features.npz"]
    return f"{about}; faster: {', '.join(faster)}".replace("faster: or ", "faster: ")


def in_words(seconds: float) -> str:
    """Return a time in whole seconds, in minutes from two minutes on, in hours from two hours on."""
    if seconds < 120:
        return f"{round(seconds)} seconds" if seconds >= 1.5 else "a second"
    return f"{round(seconds / 3600)} hours" if seconds >= 7200 else f"{round(seconds / 60)} minutes"
