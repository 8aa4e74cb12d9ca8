"""Run trainings on a Ray cluster, one task each; a task whose process or machine is lost is resumed.

Only this module needs the extra likewise[ray].
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from likewise.core.distributed.collectives import cores
from likewise.core.errors import LikewiseError
from likewise.core.processes import STOP_GRACE_SECONDS, STOPPED_MESSAGE
from likewise.core.settings import Train
from likewise.learn.training.interrupts import stop_on_signal
from likewise.papers.executors import Attempt, Outcome, attempt

MAX_TRIES = 5
"""How often a training is started or resumed before it counts as failed: nodes of a cluster come and go."""

LOST_TASK_ERRORS = (
    "WorkerCrashedError",
    "NodeDiedError",
    "LocalRayletDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
    "OwnerDiedError",
)
"""Ray errors that are not caused by settings: a process was killed (by a user, or for memory), or its node is gone."""


class RayExecutor:
    """As `LocalExecutor`, on a Ray cluster. All nodes must find the run folders under the same path.

    A training is one task. It gets `gpus_per_run` GPUs of a node, and the same share of its cores.

    Args:
        address: "ray" (the cluster at RAY_ADDRESS, or a running local one, or else a new local one) or "ray://HOST:PORT".
        jobs: number of trainings at once; 1: as many as fit into the cluster.
        gpus_per_run: GPUs of a training, which may be a fraction. None: 1 if the cluster has GPUs.
    """

    def __init__(self, address: str, jobs: int = 1, gpus_per_run: float | None = None):
        if address != "ray" and not address.startswith("ray://"):
            raise LikewiseError(f'bench: --executor must be "ray" or "ray://HOST:PORT", got "{address}"')
        if jobs < 1:
            raise LikewiseError(f"executor: jobs must be 1 or more, got {jobs}")
        if gpus_per_run is not None and (gpus_per_run < 0 or (gpus_per_run > 1 and gpus_per_run % 1)):
            raise LikewiseError(
                f"bench: --gpus-per-run must be a fraction of a GPU or a whole number of GPUs, got {gpus_per_run}"
            )
        self.address, self.jobs, self.gpus_per_run = address, jobs, gpus_per_run
        self.began = self.here_only = False
        self.ray: Any = None  # the module, once it is needed

    def __enter__(self) -> RayExecutor:
        try:
            import ray
        except ModuleNotFoundError:
            raise LikewiseError(
                'bench: --executor ray needs Ray, which is not installed; pip install "likewise[ray]"'
            ) from None
        self.ray = ray
        if not ray.is_initialized():
            with in_root_folder():
                self.here_only = connect(ray, self.address, self.jobs)
            self.began = True
        return self

    def __exit__(self, *problem) -> None:
        if self.began:
            self.ray.shutdown()

    def work(
        self, configs: Sequence[Train], more: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[int, Outcome], None, None]:
        """As `Executor.work`, except that all trainings are submitted at once: `more` is called once, before the first."""
        if not more():
            return
        tasks = [self.task(config) for config in configs]
        for folder in {Path(config.out).absolute().parent for config in configs if config.out}:
            if not self.here_only:
                self.check_shared(folder)
        left, tries, waiting = deque(range(len(tasks))), [0] * len(tasks), {}
        room = self.jobs if self.jobs > 1 else len(tasks)
        with stop_on_signal() as stop:
            try:
                while left or waiting:
                    while left and len(waiting) < room:
                        place = left.popleft()
                        remote, config = tasks[place]
                        waiting[remote.remote(os.getcwd(), sys.path, config)] = place
                        tries[place] += 1
                    for ready in self.ray.wait(list(waiting), timeout=0.5)[0]:
                        place = waiting.pop(ready)
                        outcome, lost = self.outcome(ready)
                        if lost and tries[place] < MAX_TRIES:
                            left.appendleft(place)
                        else:
                            yield place, outcome
                    if stop.is_set():
                        raise KeyboardInterrupt(STOPPED_MESSAGE)
            finally:
                self.end(list(waiting))

    def task(self, config: Train):
        """Return the Ray task of a training, with its resources, and the settings for its node."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        gpus = gpus_for(config, self.gpus_per_run, nodes)
        cpus = cpus_for(gpus, self.jobs, nodes)
        device = "cpu" if not gpus else "cuda" if (config.device or "").startswith("cuda") else config.device
        workers = min(8, cpus // 2) if config.workers < 0 else config.workers
        assert config.out is not None
        out = str(Path(config.out).expanduser().absolute())
        remote = self.ray.remote(
            num_gpus=gpus, num_cpus=cpus, max_retries=0,
            # A new process for every training: it frees its GPU memory, and a stop during an import affects no other.
            max_calls=1,
        )(train_on_node)  # fmt: skip
        return remote, replace(config, device=device, workers=workers, out=out)

    def outcome(self, ready) -> tuple[Outcome, bool]:
        """Return the outcome of a task, and whether its process or node was lost."""
        try:
            error, crashed, _ = self.ray.get(ready)
            return Outcome(error, crashed), False
        except self.ray.exceptions.RayError as error:  # pyright: ignore[reportAttributeAccessIssue]
            kind, lines = type(error).__name__, str(error).strip().splitlines() or [""]
            if kind in LOST_TASK_ERRORS:
                return Outcome(
                    f"the process that trained it was lost {MAX_TRIES} times ({kind}: {lines[0]})", True
                ), True
            return Outcome(f"Ray could not train it ({kind}: {lines[-1]})", True), False

    def end(self, waiting: list) -> None:
        """Stop tasks and wait until they have saved a checkpoint; a second Ctrl-C kills them."""
        try:
            while waiting:
                for task in waiting:
                    self.ray.cancel(task)
                waiting = self.ray.wait(waiting, num_returns=len(waiting), timeout=STOP_GRACE_SECONDS)[1]
        except KeyboardInterrupt:
            for task in waiting:
                self.ray.cancel(task, force=True)
            raise

    def check_shared(self, folder: Path) -> None:
        """Raise unless every node finds the folder of the runs, and the current folder, to which paths are relative."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / f".seen-{uuid4().hex}"
        mark.touch()
        try:
            checks = []
            for node in self.ray.nodes():
                if node["Alive"]:
                    on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                    check = self.ray.remote(num_cpus=0, scheduling_strategy=on_node)(missing)  # pyright: ignore[reportArgumentType]
                    checks.append(check.remote([os.getcwd(), str(mark)]))
            answers = self.ray.get(checks, timeout=600)
        except self.ray.exceptions.RayError as error:  # pyright: ignore[reportAttributeAccessIssue]
            raise LikewiseError(
                f"bench: a node of the Ray cluster cannot run likewise ({str(error).strip().splitlines()[-1]}); install the "
                "same likewise there, or set PYTHONPATH to a place that all nodes see"
            ) from None
        finally:
            mark.unlink(missing_ok=True)
        check_visible(answers, mark)


def check_visible(answers: list[tuple[str, list[str]]], mark: Path) -> None:
    """Raise if a node does not find a path; `answers` has the missing paths of every node."""
    for host, gone in answers:
        if gone:
            folder = mark.parent if gone[0] == str(mark) else gone[0]
            raise LikewiseError(
                f"bench: runs must lie on storage that all nodes share, but {host} does not see '{folder}'; use a working "
                "directory and an --out that all nodes mount under the same path (NFS, Lustre)"
            )


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


def connect(ray, address: str, jobs: int) -> bool:
    """Connect to the running cluster, or start a local one. Returns whether it was started here."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    path = os.pathsep.join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    imports = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}} if path else {}
    known = os.environ.get("RAY_ADDRESS") if address == "ray" else address
    last = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray", "ray_current_cluster")
    where = known or (last.read_text().strip() if last.exists() else "local")
    try:
        if where != "local":
            check_reachable(where)
            ray.init(address=known or "auto", **imports, **quiet)
            return False
    except Exception as error:  # every kind of connection has its own exceptions
        if known:
            raise LikewiseError(
                f"bench: no Ray cluster answers at '{known}' ({type(error).__name__}: {str(error).splitlines()[0]}); start it, "
                "correct the address, set RAY_AUTH_MODE=token if it needs a token, or use --jobs to train on this machine"
            ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    small = {"num_cpus": max(cores(), jobs), "include_dashboard": False, "object_store_memory": 100 * 2**20}
    for left in (2, 1, 0):  # on a busy machine its processes may time out at first
        try:
            ray.init(address="local", **small, **quiet)
            break
        except Exception as error:
            ray.shutdown()
            if not left:
                raise LikewiseError(
                    f"bench: Ray does not start here ({error}); use --jobs to train without it"
                ) from None
    return True


def check_reachable(address: str) -> None:
    """Raise unless a server accepts connections at the address; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=20).close()


def gpus_for(config: Train, each: float | None, nodes: list[dict]) -> float:
    """Return the number of GPUs of a training, which may be a fraction."""
    most = max((node.get("GPU", 0) for node in nodes), default=0)
    if each is None:
        each = 0 if config.device == "cpu" or not most else config.gpus or 1
    if each > most:
        raise LikewiseError(
            f"bench: a training needs {each:g} GPUs, but no node of the Ray cluster has more than {most:g}; lower --gpus-per-run"
        )
    return each


def cpus_for(gpus: float, jobs: int, nodes: list[dict]) -> int:
    """Return the cores of a training: its share of the smallest node that has enough GPUs."""
    if gpus:
        shares = [node.get("CPU", 0) * gpus / node["GPU"] for node in nodes if node.get("GPU", 0) >= gpus]
    elif jobs > 1:
        shares = [sum(node.get("CPU", 0) for node in nodes) / jobs, *(node["CPU"] for node in nodes if node.get("CPU"))]
    else:
        shares = [1]
    return max(1, int(min(shares)))


def train_on_node(here: str, path: list[str], config: Train) -> Attempt:
    """Train in a Ray task, and return the result of `attempt`. Ray cancels a task with a KeyboardInterrupt.

    Args:
        here: working directory of the caller.
        path: import path of the caller; its entries are appended to that of this process.
    """
    os.chdir(here)
    sys.path.extend(place for place in (entry or here for entry in path) if place not in sys.path)
    return attempt(config)


def missing(paths: list[str]) -> tuple[str, list[str]]:
    """Return the name of this machine, and the paths that do not exist on it."""
    return socket.gethostname(), [path for path in paths if not Path(path).exists()]
