"""Run one training and report how it ended; the child process of `LocalExecutor`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from likewise.core.errors import DiskFull, LikewiseError, OutOfMemory, RunBusy
from likewise.core.settings import Train
from likewise.core.settings.checks import from_dict
from likewise.core.supervisor import stop_with_parent


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
