"""Child processes: started, asked to stop, killed, waited for, and ended when their parent dies. Without torch.

The parent makes a `Child`; the function that the child runs calls `heed_parent` first. A request to stop is SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from likewise.io.processes import is_stopped

GRACE = 120.0
"""Seconds that a process gets to save its state and end, once it was asked to stop."""

STOPPED = "stopped; the same command goes on from there"
"""What a user reads after a request to stop."""


class Child(subprocess.Popen):
    """A child process in a session of its own: Ctrl-C reaches this process alone, which passes it on.

    Its stdin is a pipe that ends when this process dies; `heed_parent` takes that as a request to stop.

    Args:
        words: the command line; see `processes.command`.
        environment: all its variables; None: those of this process.
        answers: whether `ask` is used: stdout is then a pipe too, and stderr is kept for `last_words`.
    """

    stdin: IO[str]
    stdout: IO[str]

    def __init__(self, words: Sequence[str], environment: Mapping[str, str] | None = None, *, answers: bool = False):
        self.asked_to_stop = False
        self.suspended = False  # when it was last looked at
        self.messages = tempfile.TemporaryFile("w+", errors="replace") if answers else None  # noqa: SIM115
        super().__init__(
            list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else None, stderr=self.messages,
            text=True, encoding="utf-8", env=environment, start_new_session=True,
        )  # fmt: skip

    @property
    def lost(self) -> bool:
        """Whether it has ended, as far as is known, although it was not asked to stop."""
        return self.returncode is not None and not self.asked_to_stop

    def ask(self, line: str) -> str:
        """Write a line to its stdin and return the line that it answers; empty if it ended without an answer."""
        try:
            self.stdin.write(line + "\n")
            self.stdin.flush()
            return self.stdout.readline()
        except (OSError, ValueError):  # its end of the pipe, or ours, is closed
            return ""

    def last_words(self) -> str:
        """Wait for its end and return its exit code with the last line of its stderr."""
        code, lines = self.wait(), []
        if self.messages is not None:
            self.messages.seek(0)
            lines = self.messages.read().strip().splitlines()
        return f"the process ended with code {code}{f': {lines[-1]}' if lines else ''}"

    def ask_to_stop(self) -> None:
        """Send SIGTERM once, and wake it if it is suspended: it could not end otherwise."""
        if not self.asked_to_stop:
            self.asked_to_stop = True
            self.terminate()
        if is_stopped(self.pid):
            self.send_signal(signal.SIGCONT)


def wait_together(children: Sequence[Child], stop: threading.Event, grace: float = GRACE) -> list[int]:
    """Wait until all children of one job have ended, and return their exit codes. None of them outlives the call.

    A request to stop is passed on. When one fails the others cannot go on: they are asked to stop two seconds later, and
    killed after `grace`.
    """
    failed_at = None
    try:
        while any(child.poll() is None for child in children):
            asked = any(child.asked_to_stop for child in children)
            if stop.is_set() and not asked:
                ask_all(children)
            if failed_at is None and any(child.poll() for child in children):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > (grace if asked else 2):
                if asked:
                    kill_all(children)
                else:
                    ask_all(children)
            time.sleep(0.05)
    finally:
        kill_all(children)
        for child in children:
            child.wait()
            with contextlib.suppress(OSError):
                child.stdin.close()
    return [child.returncode for child in children]


def stop_all(children: Iterable[Child]) -> None:
    """Ask all to stop and wait until they have saved their state; a second Ctrl-C kills them."""
    children = list(children)
    try:
        ask_all(children)
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        kill_all(children)
        raise


def ask_all(children: Iterable[Child]) -> None:
    for child in children:
        child.ask_to_stop()


def kill_all(children: Iterable[Child]) -> None:
    for child in children:
        child.kill()


def heed_parent() -> queue.SimpleQueue[str | None]:
    """Ask this process to stop (SIGTERM) when its stdin ends, because its parent closed it or died; Ctrl-C works again.

    Returns the lines that the parent writes, and None after the last. A shell starts what it puts into the background with
    SIGINT ignored, which children inherit.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    # A thread that waits on sys.stdin holds its lock, and a process forked to read pictures would wait for it for ever.
    stdin, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), open(os.devnull, encoding="utf-8")  # noqa: SIM115

    def listen() -> None:
        for line in stdin:
            lines.put(line)
        os.kill(os.getpid(), signal.SIGTERM)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    return lines
