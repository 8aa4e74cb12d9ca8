"""One training as a job: how it ended, and the process that trains one job after another for `LocalExecutor`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from likewise.config import Train
from likewise.config.checks import from_dict
from likewise.errors import DiskFull, LikewiseError, OutOfMemory, RunBusy
from likewise.io.supervisor import heed_parent


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `error`: why it failed; `crashed`: the cause is not its settings.

    A process that was killed is no outcome yet: another process goes on from the run's last state, a few times.
    """

    error: str | None = None
    crashed: bool = False


class Attempt(NamedTuple):
    """How a training ended in one process. `spent`: the process should end, because it may have kept memory or be broken."""

    error: str | None = None
    crashed: bool = False
    spent: bool = False


def attempt(config: Train, train: Callable | None = None, wait: Callable[[float], object] = time.sleep) -> Attempt:
    """Train, and return how that ended. A run that another process is training is waited for.

    Args:
        train: in place of `training.fit.train`.
        wait: is called with the seconds until the next look at a run that is busy.
    """
    if train is None:
        from likewise.training.fit import train
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
    """Train the config in every line of stdin and answer each with a line of JSON, an `Attempt`, until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else is taken for an answer
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        configs = heed_parent()
        while (line := configs.get()) is not None:
            done = attempt(from_dict(Train, json.loads(line)))
            print(json.dumps(done), file=answers, flush=True)
            if done.spent:
                return
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: object) -> None:
    """Stop as by Ctrl-C, outside of the steps of a training, which handle SIGTERM themselves; once is enough."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
