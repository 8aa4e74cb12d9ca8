"""Child processes: command line, start, stop, kill, wait, end with the parent; whether a process lives or is suspended.

The parent creates a `Child`; the function that the child runs calls `stop_with_parent` first. A request to stop is SIGTERM. Does
not import torch.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO


def command(work: str, *words: str) -> list[str]:
    """Return the command line of a child process that calls `work` ("module:function") with this process's import path.

    `-P` keeps the current folder off that path, where a file could shadow a module.
    """
    module, function = work.split(":")
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = f"import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}()"
    return [sys.executable, "-P", "-c", code, *words]


@cache
def pid_scope() -> str | None:
    """Return an identifier of the set of processes among which a process id is unique; None if it is not known.

    On Linux: the boot id and the PID namespace, because containers may share a host name and a folder while each of
    them numbers its processes from 1. On other Unix systems: the host name.
    """
    if os.name == "nt":  # os.kill(pid, 0) ends the process on Windows
        return None
    if sys.platform != "linux":
        return socket.gethostname()
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def mark() -> dict[str, str | int | None]:
    """Return a JSON record that identifies this process, for `lives`."""
    return {"space": pid_scope(), "pid": os.getpid(), "born": _born(os.getpid())}


def lives(owner: object) -> bool | None:
    """Whether the process described by this record of `mark` is alive; None if that cannot be checked from here."""
    if not isinstance(owner, dict):
        return None
    pid = owner.get("pid")
    if not isinstance(pid, int) or pid <= 0 or not pid_scope() or owner.get("space") != pid_scope():
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return None
    now = _born(pid)
    if now is None or owner.get("born") is None:
        return None
    return now == owner["born"]  # if they differ, the system reused the process id


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is suspended (SIGSTOP, SIGTSTP); False if the system has no /proc."""
    return _state(pid)[:1] in (["T"], ["t"])


def _state(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the process state on; empty if the file is missing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; -1: it is a zombie; None: unknown."""
    fields = _state(pid)
    if not fields:
        return None
    return -1 if fields[0] in "ZX" else int(fields[19])


STOP_GRACE_SECONDS = 120.0
"""Seconds that a process has to save its state and end after a request to stop."""

STOPPED_MESSAGE = "stopped; run the same command again to resume"
"""The message to the user after a request to stop."""


class Child(subprocess.Popen):
    """A child process in a session of its own: Ctrl-C reaches only the parent, which forwards the request to stop.

    The child's stdin is a pipe that closes when the parent dies; `stop_with_parent` treats that as a request to stop.

    Args:
        words: the command line; see `command`.
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
