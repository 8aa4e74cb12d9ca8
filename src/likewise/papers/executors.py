"""Executors of trainings: `LocalExecutor` in processes of this machine, `RayExecutor` (ray_executor.py) on a cluster."""

from __future__ import annotations

import json
import os
import queue
import signal
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from likewise.core.distributed.collectives import cores
from likewise.core.errors import DiskFull, LikewiseError, OutOfMemory, RunBusy
from likewise.core.processes import STOPPED_MESSAGE, Child, command, is_stopped, stop_all, stop_with_parent
from likewise.core.settings import Train, to_dict
from likewise.core.settings.setting_values import from_dict
from likewise.learn.training.interrupts import stop_on_signal

MAX_TRIES = 3
"""Number of processes that may be killed during one training, before it counts as failed."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `error`: the reason of a failure; `crashed`: the settings are not the cause.

    A killed process is not an outcome: another process resumes from the last checkpoint, a few times.
    """

    error: str | None = None
    crashed: bool = False


class Attempt(NamedTuple):
    """How a training ended in one process. `spent`: the process should end, because it may have kept memory or be broken."""

    error: str | None = None
    crashed: bool = False
    spent: bool = False


@runtime_checkable
class Executor(Protocol):
    """Trains configs, several at once, within a `with` block."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *problem) -> None: ...

    def work(
        self, configs: Sequence[Train], more: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Train all configs and yield the index and outcome of each as it ends. Closing the generator stops the others.

        Args:
            more: called before each training; once it returns False, no further training starts.
        """
        ...


class LocalExecutor:
    """Trains configs without output: one at a time in this process, or `size` at a time in child processes.

    Children read configs from stdin. On a stop signal, or if this process dies, they save a checkpoint and end.
    """

    def __init__(self, size: int, say: Callable[[str], None] = print):
        if size < 1:
            raise LikewiseError(f"executor: jobs must be 1 or more, got {size}")
        self.size, self.say = size, say
        self._pool = ThreadPoolExecutor(size)
        self._places: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self._busy: set[Child] = set()
        for _ in range(size):
            self._places.put(None)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *problem) -> None:
        self._pool.shutdown(cancel_futures=True)
        while not self._places.empty():
            stop_all([child] if (child := self._places.get()) else [])

    def work(
        self, configs: Sequence[Train], more: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[int, Outcome], None, None]:
        """As `Executor.work`."""
        if self.size == 1:
            for place, config in enumerate(configs):
                if not more():
                    return
                done = attempt(config)
                yield place, Outcome(done.error, done.crashed)
            return
        waiting = {self._pool.submit(self._one, config, more): place for place, config in enumerate(configs)}
        with stop_on_signal() as stop:
            try:
                while waiting:
                    for future in wait(waiting, 0.2, FIRST_COMPLETED).done:
                        place, outcome = waiting.pop(future), future.result()
                        if outcome is not None:
                            yield place, outcome
                    self._report_suspended()
                    if stop.is_set():
                        raise KeyboardInterrupt(STOPPED_MESSAGE)
            finally:
                running = [future for future in waiting if not future.cancel()]
                while running:  # repeated, because a child may just be starting
                    stop_all(self._busy)
                    running = list(wait(running, 0.2).not_done)

    def _report_suspended(self) -> None:
        """Report every suspended child once, with the commands to continue or kill it; training waits for it."""
        for child in list(self._busy):
            suspended = is_stopped(child.pid)
            if suspended and not child.suspended:
                self.say(
                    f"training process {child.pid} is suspended: `kill -CONT {child.pid}` continues it, "
                    f"`kill -KILL {child.pid}` makes another process resume its training"
                )
            child.suspended = suspended

    def _one(self, config: Train, more: Callable[[], bool]) -> Outcome | None:
        """Train one config in a child; if the child is killed, another one resumes the training. None if `more` refuses."""
        if not more():
            return None
        if config.workers < 0:
            from likewise.data.loader import choose_workers

            config = replace(config, workers=choose_workers(-1) // self.size)
        child, done = self._places.get(), Attempt()
        for _ in range(MAX_TRIES):
            if child is None or child.lost or child.asked_to_stop:
                child = start_worker(self.size)
            self._busy.add(child)
            try:
                line = child.ask(json.dumps(to_dict(config)))
                done = Attempt(*json.loads(line)) if line else Attempt(child.exit_summary(), crashed=True, spent=True)
            finally:
                self._busy.discard(child)
            if not child.lost:
                break
        self._places.put(None if done.spent else child)
        return Outcome(done.error, done.crashed)


def start_worker(share: int) -> Child:
    """Start a child that runs `worker.serve`; `share` children divide the cores of the machine."""
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // share))} if share > 1 else {}
    return Child(command("likewise.papers.executors:serve"), threads | os.environ, answers=True)


def attempt(config: Train, train: Callable | None = None, wait: Callable[[float], object] = time.sleep) -> Attempt:
    """Train, and return how it ended. If another process is training the run, wait for it.

    Args:
        train: replaces `training.fit.train`.
        wait: called with the seconds until the next attempt, while the run is busy.
    """
    if train is None:
        from likewise.learn.training.fit import train
    while True:
        try:
            train(config, say=lambda line: None)
            return Attempt()
        except RunBusy:
            wait(1)
        except LikewiseError as error:
            return Attempt(str(error), isinstance(error, DiskFull), isinstance(error, OutOfMemory))
        except Exception as error:
            return Attempt(f"{type(error).__name__}: {error}", crashed=True, spent=True)


def serve() -> None:
    """Read configs from stdin, one JSON line each, train them, and write an `Attempt` as a JSON line for each."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output goes to stderr, so that stdout has only answers
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        configs = stop_with_parent()
        while (line := configs.get()) is not None:
            done = attempt(from_dict(Train, json.loads(line)))
            print(json.dumps(done), file=answers, flush=True)
            if done.spent:
                return
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt on SIGTERM, once; during the steps of a training, the training handles SIGTERM itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
