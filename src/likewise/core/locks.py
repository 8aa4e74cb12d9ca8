"""Locks between processes. Standard library only, so that tools/environment.py can use them before anything is installed.

`file_lock` uses flock: it works between processes of one machine, and the kernel releases it when its owner ends.
`HeartbeatLock` is a file that names its owner: it also works between machines and containers that share a folder, where
flock may have no effect or may not exist.
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

from likewise.core.processes import lives, mark

try:
    import fcntl
except ImportError:  # Windows: `file_lock` locks nothing there
    fcntl = None

STALE_LOCK_SECONDS = 60.0
"""Seconds without a heartbeat after which the owner of a lock counts as gone."""


@contextmanager
def file_lock(file: Path, *, wait: bool = True, before_waiting: Callable[[], object] | None = None) -> Iterator[bool]:
    """Lock a file exclusively and yield whether that succeeded. A missing file is created; its content is not changed.

    Args:
        wait: wait until the lock is free; otherwise yield False if another process holds it.
        before_waiting: called once before waiting, if the lock is taken.
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


@contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder exclusively, without a file in it, and yield whether that succeeded."""
    if fcntl is None:
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except BlockingIOError:
        locked = False
    except OSError:  # a network disk without locks
        locked = True
    try:
        yield locked
    finally:
        os.close(handle)


def share_lock(handle: IO) -> None:
    """Take a shared lock on an open file: `file_lock` cannot lock it until it is closed, other shared locks can."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_SH)


class LockHeld(Exception):
    """Raised when another process holds a `HeartbeatLock`. `owner`: content of the lock file; None: not yet written."""

    def __init__(self, file: Path, owner: dict | None):
        super().__init__(f"{file} is held by {owner}")
        self.owner = owner


class HeartbeatLock:
    """A lock file that names its owner and whose modification time is the owner's heartbeat.

    The owner counts as gone when its process has ended. If the process is not visible from here (another machine or
    container), the owner counts as gone when the heartbeat is older than `stale` seconds, by the clock of the file system.
    """

    def __init__(self, file: Path, stale: float = STALE_LOCK_SECONDS):
        self.file, self.stale = file, stale
        self.content = {"host": socket.gethostname(), "since": time.time(), **mark()}
        self.released = threading.Event()

    def acquire(self) -> None:
        """Create the lock file, replacing a stale one. Raises `LockHeld` if the owner of an existing file is alive."""
        for _ in range(2):
            try:
                with self.file.open("x") as file:
                    file.write(json.dumps(self.content))
                break
            except FileExistsError:
                if not is_stale(self.file, self.stale):
                    raise LockHeld(self.file, read_owner(self.file)) from None
                remove_stale(self.file, self.stale)
        else:
            raise LockHeld(self.file, None)
        threading.Thread(target=self._beat, daemon=True).start()

    def release(self) -> None:
        """Delete the lock file, unless another process regarded it as stale and owns it now."""
        self.released.set()
        if read_owner(self.file) == self.content:
            self.file.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self.released.wait(self.stale / 6):
            try:
                os.utime(self.file)
            except OSError:
                return


def remove_stale(file: Path, stale: float) -> None:
    """Delete a stale lock file. If two processes try at once, only one can rename the file; the other deletes nothing."""
    aside = file.with_name(f".{file.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        os.rename(file, aside)
    except FileNotFoundError:
        return
    if is_stale(aside, stale):
        aside.unlink(missing_ok=True)
    else:  # another process acquired it between the check and the rename
        os.rename(aside, file)


def is_stale(file: Path, stale: float) -> bool:
    """Whether the owner of a lock file is gone: by its process if that is visible from here, otherwise by its heartbeat."""
    try:
        beat = file.stat().st_mtime
        with tempfile.TemporaryFile(dir=file.parent) as now:  # the clock of the file system, which may be a server
            age = os.fstat(now.fileno()).st_mtime - beat
    except FileNotFoundError:
        return True
    alive = lives(read_owner(file))
    return age > stale if alive is None else not alive


def read_owner(file: Path) -> dict:
    """Return the content of a lock file; an empty dict if it is damaged, half written or missing."""
    try:
        owner = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}
