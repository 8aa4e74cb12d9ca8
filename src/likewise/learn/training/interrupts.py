"""Around the training loop: stop signals, checkpoint intervals, CPU cores for readers, and the check for finite values."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from likewise.core.durations import seconds_of
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run


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


def raise_unless_finite(value: float, step: int, folder: Path, what: str = "the loss") -> None:
    """Raise if a value is NaN or infinite; `what` names the value in the error."""
    if not math.isfinite(value):
        raise LikewiseError(
            f"train: {what} must stay finite, but became {value} before step {step}; lower --lr or set --clip-norm. "
            f"The last finite checkpoint is in {folder}"
        )
