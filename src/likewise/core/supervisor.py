"""Child processes: start, stop, kill, wait, and end them when their parent dies. Does not import torch.

The parent creates a `Child`; the function that the child runs calls `heed_parent` first. A request to stop is SIGTERM.
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

from likewise.core.processes import is_stopped

STOP_GRACE_SECONDS = 120.0
"""Seconds that a process has to save its state and end after a request to stop."""

STOPPED_MESSAGE = "stopped; run the same command again to resume"
"""The message to the user after a request to stop."""


class Child(subprocess.Popen):
    """A child process in a session of its own: Ctrl-C reaches only the parent, which forwards the request to stop.

    The child's stdin is a pipe that closes when the parent dies; `heed_parent` treats that as a request to stop.

    Args:
        words: the command line; see `processes.command`.
        environment: all environment variables; None: those of this process.
        answers: whether `ask` is used: stdout is then a pipe too, and stderr goes to a file for `last_words`.
    """

    stdin: IO[str]
    stdout: IO[str]

    def __init__(self, words: Sequence[str], environment: Mapping[str, str] | None = None, *, answers: bool = False):
        self.asked_to_stop = False
        self.suspended = False  # at the last check
        self.messages = tempfile.TemporaryFile("w+", errors="replace") if answers else None  # noqa: SIM115
        super().__init__(
            list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else None, stderr=self.messages,
            text=True, encoding="utf-8", env=environment, start_new_session=True,
        )  # fmt: skip

    @property
    def lost(self) -> bool:
        """Whether the child is known to have ended without a request to stop."""
        return self.returncode is not None and not self.asked_to_stop

    def ask(self, line: str) -> str:
        """Write a line to the child's stdin and return the next line of its stdout; empty if the child has ended."""
        try:
            self.stdin.write(line + "\n")
            self.stdin.flush()
            return self.stdout.readline()
        except (OSError, ValueError):  # either end of the pipe is closed
            return ""

    def exit_summary(self) -> str:
        """Wait until the child ends and return a message with its exit code and the last line of its stderr."""
        code, lines = self.wait(), []
        if self.messages is not None:
            self.messages.seek(0)
            lines = self.messages.read().strip().splitlines()
        return f"the process ended with code {code}{f': {lines[-1]}' if lines else ''}"

    def ask_to_stop(self) -> None:
        """Send SIGTERM once, and resume a suspended child: it could not end otherwise."""
        if not self.asked_to_stop:
            self.asked_to_stop = True
            self.terminate()
        if is_stopped(self.pid):
            self.send_signal(signal.SIGCONT)


def wait_together(children: Sequence[Child], stop: threading.Event, grace: float = STOP_GRACE_SECONDS) -> list[int]:
    """Wait until all children of one job have ended, and return their exit codes. No child outlives the call.

    When `stop` is set, all children get a request to stop. When a child fails, the other children cannot continue: they
    get a request to stop two seconds later, and are killed after `grace` seconds.
    """
    failed_at = None
    try:
        while any(child.poll() is None for child in children):
            asked = any(child.asked_to_stop for child in children)
            if stop.is_set() and not asked:
                request_stop(children)
            if failed_at is None and any(child.poll() for child in children):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > (grace if asked else 2):
                if asked:
                    kill_all(children)
                else:
                    request_stop(children)
            time.sleep(0.05)
    finally:
        kill_all(children)
        for child in children:
            child.wait()
            with contextlib.suppress(OSError):
                child.stdin.close()
    return [child.returncode for child in children]


def stop_all(children: Iterable[Child]) -> None:
    """Request all children to stop and wait until they have saved their state; a second Ctrl-C kills them."""
    children = list(children)
    try:
        request_stop(children)
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        kill_all(children)
        raise


def request_stop(children: Iterable[Child]) -> None:
    for child in children:
        child.ask_to_stop()


def kill_all(children: Iterable[Child]) -> None:
    for child in children:
        child.kill()


def stop_with_parent() -> queue.SimpleQueue[str | None]:
    """Return a queue of the lines that the parent writes to stdin (None after the last), and stop with the parent.

    When stdin closes, because the parent closed it or died, this process sends itself SIGTERM. Ctrl-C is enabled again:
    a shell starts background jobs with SIGINT ignored, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    # A thread that reads sys.stdin holds its lock, and a process forked to read images would wait for that lock for ever.
    stdin, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), open(os.devnull, encoding="utf-8")  # noqa: SIM115

    def listen() -> None:
        for line in stdin:
            lines.put(line)
        os.kill(os.getpid(), signal.SIGTERM)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    return lines
