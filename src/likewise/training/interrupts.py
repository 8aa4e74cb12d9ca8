"""What a long loop needs around it: cores for its readers, and a polite end on request."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from likewise.durations import seconds_of
from likewise.runs.folder import Run
from likewise.types import LikewiseError


class Interrupted(KeyboardInterrupt):
    """Training was stopped on request; its state is saved and the same call goes on from there."""

    def __init__(self, run: Run, step: int, steps: int):
        super().__init__(f"stopped at step {step} of {steps}; the same command goes on from there ({run.path})")


@contextmanager
def leave_cores_for(workers: int, device: torch.device) -> Iterator[None]:
    """On a CPU, the network's threads and the reading processes must not fight for the same cores."""
    before = torch.get_num_threads()
    if device.type == "cpu" and workers:
        torch.set_num_threads(max(1, before - workers))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and SIGHUP (the terminal is closed) set; a second Ctrl-C stops at once.

    A parent may pass a Ctrl-C on as SIGTERM, so that a SIGTERM after it is not a second one. A SIGHUP that is ignored
    (nohup) stays ignored.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number, frame) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Saves:
    """When a state is due: every so many steps, or seconds; then saving takes a twentieth of the time at most."""

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


def must_be_finite(value: float, step: int, folder: Path, what: str = "the loss") -> None:
    if not math.isfinite(value):
        raise LikewiseError(
            f"train: {what} became {value} before step {step}; lower lr or set clip_norm. "
            f"The last sound state is kept in {folder}"
        )
