"""Other processes: how they are started, and whether they still live. Without torch."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path


def command(work: str, *words: str) -> list[str]:
    """The command line of a child process that calls `work` ("module:function") with this process's import path.

    `-P` keeps Python from putting the current folder first on that path, where any file could take a module's place.
    """
    module, function = work.split(":")
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = f"import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}()"
    return [sys.executable, "-P", "-c", code, *words]


@cache
def space() -> str | None:
    """Where process numbers mean the same processes as here; None where that is not known.

    Containers may share a host name and a folder, and each count its processes from 1: on Linux it is the boot and
    the PID namespace.
    """
    if os.name == "nt":  # there, asking whether a process lives ends it
        return None
    if sys.platform != "linux":
        return socket.gethostname()
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def mark() -> dict[str, str | int | None]:
    """What identifies this process to `lives`, as JSON takes it."""
    return {"space": space(), "pid": os.getpid(), "born": _born(os.getpid())}


def lives(owner: object) -> bool | None:
    """Whether the process that left this `mark` lives; None where that cannot be known from here."""
    if not isinstance(owner, dict):
        return None
    pid = owner.get("pid")
    if not isinstance(pid, int) or pid <= 0 or not space() or owner.get("space") != space():
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
    return now == owner["born"]  # else another process got its number


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is suspended (SIGSTOP, SIGTSTP); False where the system does not tell."""
    return _state(pid)[:1] in (["T"], ["t"])


def _state(pid: int) -> list[str]:
    """The fields of a process from its state on, as Linux has them; empty where there are none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> int | None:
    """When a process was started, in ticks since the boot; -1: it has ended, unnoticed by its parent; None: unknown."""
    fields = _state(pid)
    if not fields:
        return None
    return -1 if fields[0] in "ZX" else int(fields[19])
