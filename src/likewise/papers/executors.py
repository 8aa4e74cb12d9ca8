"""Executors of trainings: `LocalExecutor` in processes of this machine, `RayExecutor` in tasks of a Ray cluster.

A training whose process or machine is lost is resumed by another one.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import uuid4

from likewise.core.distributed.collectives import cores
from likewise.core.errors import DiskFull, LikewiseError, OutOfMemory, RunBusy
from likewise.core.processes import (
    STOP_GRACE_SECONDS,
    STOPPED_MESSAGE,
    Child,
    command,
    is_stopped,
    stop_all,
    stop_with_parent,
)
from likewise.core.ray_cluster import LOST_TASK_ERRORS, MAX_RAY_TRIES, check_address, ray_cluster
from likewise.core.settings import Train, to_dict
from likewise.core.settings.setting_values import from_dict
from likewise.learn.training.loop import stop_on_signal

MAX_TRIES = 3
"""Number of processes that may be killed during one training, before it counts as failed."""

INSTEAD_OF_RAY = "use --jobs to train on this machine"
"""What works without Ray, for errors."""

OBJECT_STORE_BYTES = 100 * 2**20
"""Bytes of the object store of a local Ray: trainings exchange only settings."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `error`: the reason of a failure; `crashed`: the settings are not the cause.

    A killed process is not an outcome: another process resumes from the last checkpoint, a few times.
    """

    error: str | None = None
    crashed: bool = False


class Attempt(NamedTuple):
    """How a training ended in one process. `spent`: the process should end, because it may have kept memory or be broken."""

    error: str | None = None
    crashed: bool = False
    spent: bool = False


@runtime_checkable
class Executor(Protocol):
    """Trains configs, several at once, within a `with` block."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *problem) -> None: ...

    def work(
        self, configs: Sequence[Train], more: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Train all configs and yield the index and outcome of each as it ends. Closing the generator stops the others.

        Args:
            more: called before each training; once it returns False, no further training starts.
        """
        ...


class LocalExecutor:
    """Trains configs without output: one at a time in this process, or `size` at a time in child processes.

    Children read configs from stdin. On a stop signal, or if this process dies, they save a checkpoint and end.
    """

    def __init__(self, size: int, say: Callable[[str], None] = print):
        if size < 1:
            raise LikewiseError(f"executor: jobs must be 1 or more, got {size}")
        self.size, self.say = size, say
        self._pool = ThreadPoolExecutor(size)
        self._places: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self._busy: set[Child] = set()
        for _ in range(size):
            self._places.put(None)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *problem) -> None:
        self._pool.shutdown(cancel_futures=True)
        while not self._places.empty():
            stop_all([child] if (child := self._places.get()) else [])

    def work(
        self, configs: Sequence[Train], more: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[int, Outcome], None, None]:
        """As `Executor.work`."""
        if self.size == 1:
            for place, config in enumerate(configs):
                if not more():
                    return
                done = attempt(config)
                yield place, Outcome(done.error, done.crashed)
            return
        waiting = {self._pool.submit(self._one, config, more): place for place, config in enumerate(configs)}
        with stop_on_signal() as stop:
            try:
                while waiting:
                    for future in wait(waiting, 0.2, FIRST_COMPLETED).done:
                        place, outcome = waiting.pop(future), future.result()
                        if outcome is not None:
                            yield place, outcome
                    self._report_suspended()
                    if stop.is_set():
                        raise KeyboardInterrupt(STOPPED_MESSAGE)
            finally:
                running = [future for future in waiting if not future.cancel()]
                while running:  # repeated, because a child may just be starting
                    stop_all(self._busy)
                    running = list(wait(running, 0.2).not_done)

    def _report_suspended(self) -> None:
        """Report every suspended child once, with the commands to continue or kill it; training waits for it."""
        for child in list(self._busy):
            suspended = is_stopped(child.pid)
            if suspended and not child.suspended:
                self.say(
                    f"training process {child.pid} is suspended: `kill -CONT {child.pid}` continues it, "
                    f"`kill -KILL {child.pid}` makes another process resume its training"
                )
            child.suspended = suspended

    def _one(self, config: Train, more: Callable[[], bool]) -> Outcome | None:
        """Train one config in a child; if the child is killed, another one resumes the training. None if `more` refuses."""
        if not more():
            return None
        if config.workers < 0:
            from likewise.data.loader import choose_workers

            config = replace(config, workers=choose_workers(-1) // self.size)
        child, done = self._places.get(), Attempt()
        for _ in range(MAX_TRIES):
            if child is None or child.lost or child.asked_to_stop:
                child = start_worker(self.size)
            self._busy.add(child)
            try:
                line = child.ask(json.dumps(to_dict(config)))
                done = Attempt(*json.loads(line)) if line else Attempt(child.exit_summary(), crashed=True, spent=True)
            finally:
                self._busy.discard(child)
            if not child.lost:
                break
        self._places.put(None if done.spent else child)
        return Outcome(done.error, done.crashed)


def start_worker(share: int) -> Child:
    """Start a child that runs `worker.serve`; `share` children divide the cores of the machine."""
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // share))} if share > 1 else {}
    return Child(command("likewise.papers.executors:serve"), threads | os.environ, answers=True)


def attempt(config: Train, train: Callable | None = None, wait: Callable[[float], object] = time.sleep) -> Attempt:
    """Train, and return how it ended. If another process is training the run, wait for it.

    Args:
        train: replaces `training.fit.train`.
        wait: called with the seconds until the next attempt, while the run is busy.
    """
    if train is None:
        from likewise.learn.training.fit import train
    while True:
        try:
            train(config, say=lambda line: None)
            return Attempt()
        except RunBusy:
            wait(1)
        except LikewiseError as error:
            return Attempt(str(error), isinstance(error, DiskFull), isinstance(error, OutOfMemory))
        except Exception as error:
            return Attempt(f"{type(error).__name__}: {error}", crashed=True, spent=True)


def serve() -> None:
    """Read configs from stdin, one JSON line each, train them, and write an `Attempt` as a JSON line for each."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output goes to stderr, so that stdout has only answers
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        configs = stop_with_parent()
        while (line := configs.get()) is not None:
            done = attempt(from_dict(Train, json.loads(line)))
            print(json.dumps(done), file=answers, flush=True)
            if done.spent:
                return
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt on SIGTERM, once; during the steps of a training, the training handles SIGTERM itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


class RayExecutor:
    """As `LocalExecutor`, on a Ray cluster (extra likewise[ray]). All nodes must find the run folders under the same path.

    A training is one task. It gets `gpus_per_run` GPUs of a node, and the same share of its cores.

    Args:
        address: "ray" (the cluster at RAY_ADDRESS, or a running local one, or else a new local one) or "ray://HOST:PORT".
        jobs: number of trainings at once; 1: as many as fit into the cluster.
        gpus_per_run: GPUs of a training, which may be a fraction. None: 1 if the cluster has GPUs.
    """

    def __init__(self, address: str, jobs: int = 1, gpus_per_run: float | None = None):
        check_address("bench", address)
        if jobs < 1:
            raise LikewiseError(f"executor: jobs must be 1 or more, got {jobs}")
        if gpus_per_run is not None and (gpus_per_run < 0 or (gpus_per_run > 1 and gpus_per_run % 1)):
            raise LikewiseError(
                f"bench: --gpus-per-run must be a fraction of a GPU or a whole number of GPUs, got {gpus_per_run}"
            )
        self.address, self.jobs, self.gpus_per_run = address, jobs, gpus_per_run
        self.here_only = False
        self.ray: Any = None  # the module, once it is needed
        self._cluster: Any = None

    def __enter__(self) -> RayExecutor:
        self._cluster = ray_cluster("bench", self.address, INSTEAD_OF_RAY, self.jobs, OBJECT_STORE_BYTES)
        self.ray, self.here_only = self._cluster.__enter__()
        return self

    def __exit__(self, *problem) -> None:
        self._cluster.__exit__(*problem)

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
                        if lost and tries[place] < MAX_RAY_TRIES:
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
                    f"the process that trained it was lost {MAX_RAY_TRIES} times ({kind}: {lines[0]})", True
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
