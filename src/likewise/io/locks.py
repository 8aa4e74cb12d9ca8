"""Locks between processes. Standard library only, so that tools/environment.py can use them before anything is installed.

`file_lock` is a lock of the kernel (flock): processes of one machine, released however its owner ends. `HeartbeatLock` is a
file that names its owner: machines and containers that share a folder, where flock may not reach or does not exist.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from likewise.io.processes import lives, mark

try:
    import fcntl
except ImportError:  # Windows: `file_lock` locks nothing there
    fcntl = None

STALE = 60.0
"""Seconds without a heartbeat after which a lock counts as left behind."""


@contextmanager
def file_lock(file: Path, *, wait: bool = True, before_waiting: Callable[[], object] | None = None) -> Iterator[bool]:
    """Lock a file exclusively and yield whether that succeeded. The file is created if missing; its content stays.

    Args:
        wait: wait until the lock is free; otherwise yield False if another process holds it.
        before_waiting: is called once before waiting.
    """
    with file.open("ab") as handle:
        locked = True
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                locked = wait
                if wait:
                    if before_waiting is not None:
                        before_waiting()
                    fcntl.flock(handle, fcntl.LOCK_EX)
        yield locked


def share_lock(handle: IO) -> None:
    """Keep an open file from being locked by `file_lock` until it is closed; several processes may share it."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_SH)


class LockHeld(Exception):
    """Another process holds a `HeartbeatLock`. `owner`: the content of its file; None: it is being taken just now."""

    def __init__(self, file: Path, owner: dict | None):
        super().__init__(f"{file} is held by {owner}")
        self.owner = owner


class HeartbeatLock:
    """A lock file that names its owner and whose modification time is the owner's heartbeat.

    The owner counts as gone when its process has ended, where that is visible from here; elsewhere (another machine, another
    container) when the heartbeat is older than `stale` seconds, by the clock of the disk.
    """

    def __init__(self, file: Path, stale: float = STALE):
        self.file, self.stale = file, stale
        self.content = {"host": socket.gethostname(), "since": time.time(), **mark()}
        self.released = threading.Event()

    def acquire(self) -> None:
        """Create the file, in place of one that was left behind. Raises `LockHeld` if its owner still lives."""
        for _ in range(2):
            try:
                with self.file.open("x") as file:
                    file.write(json.dumps(self.content))
                break
            except FileExistsError:
                if not is_left_behind(self.file, self.stale):
                    raise LockHeld(self.file, read_owner(self.file)) from None
                remove_left_behind(self.file, self.stale)
        else:
            raise LockHeld(self.file, None)
        threading.Thread(target=self._beat, daemon=True).start()

    def release(self) -> None:
        """Delete the file, unless another process took it for left behind and owns it now."""
        self.released.set()
        if read_owner(self.file) == self.content:
            self.file.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self.released.wait(self.stale / 6):
            try:
                os.utime(self.file)
            except OSError:
                return


def remove_left_behind(file: Path, stale: float) -> None:
    """Delete a lock file that was left behind. Of two processes that find it, one can rename it; the other deletes nothing."""
    aside = file.with_name(f".{file.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        os.rename(file, aside)
    except FileNotFoundError:
        return
    if is_left_behind(aside, stale):
        aside.unlink(missing_ok=True)
    else:  # another process acquired it between the check and the rename
        os.rename(aside, file)


def is_left_behind(file: Path, stale: float) -> bool:
    """Whether the owner of a lock file is gone: its process where that is visible from here, else its heartbeat."""
    try:
        beat = file.stat().st_mtime
        with tempfile.TemporaryFile(dir=file.parent) as now:  # by the clock of the disk, which may be a server's
            age = os.fstat(now.fileno()).st_mtime - beat
    except FileNotFoundError:
        return True
    alive = lives(read_owner(file))
    return age > stale if alive is None else not alive


def read_owner(file: Path) -> dict:
    """Return the content of a lock file; empty where it is damaged, half written or gone."""
    try:
        owner = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}
