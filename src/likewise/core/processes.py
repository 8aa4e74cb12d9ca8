"""Command lines of child processes, and checks whether a process is alive or suspended. Does not import torch."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path


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
