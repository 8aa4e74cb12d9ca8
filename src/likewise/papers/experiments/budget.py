"""Wall-clock budget of a bench: whether another training fits, and an alarm that stops one that does not end in time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from likewise.core.errors import LikewiseError
from likewise.learn.training.interrupts import request_stop

TABLE_SHARE = 0.05
"""Share of the budget that is kept for writing the table, up to `MAX_TABLE_SECONDS`."""

MAX_TABLE_SECONDS = 20.0


class BudgetSpent(KeyboardInterrupt):
    """The budget ended during a training; its state is saved."""


class Budget:
    """Decides whether another training can start: the longest training so far must fit in the rest of the budget.

    Args:
        minutes: the budget of the whole command, from now; None: no limit.
        clock: returns seconds; tests replace it.
    """

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic):
        if minutes is not None and not 0 < minutes < float("inf"):
            raise LikewiseError(f"bench: --budget must be a number of minutes above 0, got {minutes:g}")
        self.minutes, self.clock, self.longest = minutes, clock, 0.0
        seconds = (minutes or 0.0) * 60
        self.reserve = min(TABLE_SHARE * seconds, MAX_TABLE_SECONDS)
        self.end = clock() + seconds - self.reserve

    def record(self, seconds: float) -> None:
        """Record the duration of a finished training."""
        self.longest = max(self.longest, seconds)

    def fits(self) -> bool:
        """Return whether another training can end within the budget; the first one always starts."""
        return self.minutes is None or self.clock() + self.longest < self.end

    def is_spent(self) -> bool:
        """Return whether the budget has ended."""
        return self.minutes is not None and self.clock() >= self.end

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Stop the work inside this context at the end of the budget: a training saves its state first.

        An evaluation gets half of the time that is kept for the table, because without it a whole training would not count.
        Without alarms (on Windows, or outside of the main thread) a training that started runs to its end.
        """
        if self.minutes is None or not _has_alarms():
            yield
            return
        late = self.end + self.reserve / 2

        def stop(number: int, frame: object) -> None:
            """Ask a training in its loop to save and stop; elsewhere, such as during an evaluation, raise when it is late."""
            if request_stop():
                return
            if self.clock() >= late:
                raise BudgetSpent("the budget is used up")
            signal.setitimer(signal.ITIMER_REAL, max(late - self.clock(), 1e-3))

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - self.clock(), 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _has_alarms() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
