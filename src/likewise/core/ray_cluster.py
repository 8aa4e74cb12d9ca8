"""Connecting to a Ray cluster (extra likewise[ray]): one that runs, or a local one for the time of a command."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from likewise.core.distributed.collectives import cores
from likewise.core.errors import LikewiseError, pip_install

LOST_TASK_ERRORS = (
    "WorkerCrashedError",
    "NodeDiedError",
    "LocalRayletDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
    "OwnerDiedError",
)
"""Ray errors that are not caused by settings: a process was killed (by a user, or for memory), or its node is gone."""

MAX_RAY_TRIES = 5
"""How often a task is started before it counts as failed: nodes of a cluster come and go."""


def check_address(who: str, address: str) -> None:
    """Raise unless the value of --executor names a Ray cluster."""
    if address != "ray" and not address.startswith("ray://"):
        raise LikewiseError(f'{who}: --executor must be "ray" or "ray://HOST:PORT", got "{address}"')


MAX_CONNECTION_TRIES = 5
"""How often to connect to a ray:// address whose server ends the connection."""


@contextmanager
def ray_cluster(
    who: str, address: str, instead: str, cpus: int = 1, store: int | None = None
) -> Iterator[tuple[Any, bool]]:
    """Yield the module `ray`, connected, and whether a local cluster was started, which ends after the block.

    Args:
        who: command, for errors.
        address: "ray" (the cluster at RAY_ADDRESS, or a running local one, or else a new local one) or "ray://HOST:PORT".
        instead: what works without Ray, for errors.
        cpus: smallest number of cores of a new local cluster.
        store: bytes of its object store; None: Ray chooses.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise LikewiseError(
            f"{who}: --executor ray needs Ray, which is not installed; {pip_install('likewise[ray]')}"
        ) from None
    if ray.is_initialized():
        yield ray, False
        return
    with in_root_folder():
        started = connect(ray, address, who=who, instead=instead, cpus=cpus, store=store)
    try:
        yield ray, started
    finally:
        ray.shutdown()


@contextmanager
def in_root_folder() -> Iterator[None]:
    """Change into the root folder, with the paths of PYTHONPATH made absolute.

    Ray puts the folder in which it is started first on the import path of its workers, where a file could shadow a module.
    """
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(os.path.abspath(p) for p in before.split(os.pathsep) if p)
    os.environ |= {"PYTHONPATH": path} if path else {}
    try:
        with chdir(Path.cwd().anchor):
            yield
    finally:
        os.environ |= {"PYTHONPATH": before} if path else {}


def connect(ray, address: str, *, who: str, instead: str, cpus: int = 1, store: int | None = None) -> bool:
    """Connect to the running cluster, or start a local one. Returns whether it was started here. Arguments: `ray_cluster`."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    path = os.pathsep.join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    imports = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}} if path else {}
    known = os.environ.get("RAY_ADDRESS") if address == "ray" else address
    last = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray", "ray_current_cluster")
    where = known or (last.read_text().strip() if last.exists() else "local")
    try:
        if where != "local":
            check_reachable(where)
            join(ray, known or "auto", **imports, **quiet)
            return False
    except Exception as error:  # every kind of connection has its own exceptions
        if known:
            reason = ["", *str(error).strip().splitlines()][-1]  # of an error of the server: its own message
            raise LikewiseError(
                f"{who}: no Ray cluster answers at '{known}' ({type(error).__name__}: {reason}); start it, correct the "
                f"address, set RAY_AUTH_MODE=token if it needs a token, or {instead}"
            ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    small = {"num_cpus": max(cores(), cpus), "include_dashboard": False, "object_store_memory": store}
    for left in (2, 1, 0):  # on a busy machine its processes may time out at first
        try:
            ray.init(address="local", **small, **quiet)
            break
        except Exception as error:
            ray.shutdown()
            if not left:
                raise LikewiseError(f"{who}: Ray does not start here ({error}); {instead}") from None
    return True


def join(ray, address: str, **options: Any) -> None:
    """Connect to a running cluster.

    The client server of Ray, which answers at ray:// addresses, forks a process for each client while its gRPC threads run; the
    process then sometimes ends at once, and the client gets a ConnectionAbortedError. The next try gets a new process.
    """
    for left in reversed(range(MAX_CONNECTION_TRIES)):
        try:
            ray.init(address=address, **options)
            return
        except ConnectionAbortedError:
            if not left:
                raise


def check_reachable(address: str) -> None:
    """Raise unless a server accepts connections at the address; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=20).close()
