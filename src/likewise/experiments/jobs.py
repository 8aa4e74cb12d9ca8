"""Many trainings: the run that each belongs to, and child processes that train several at once."""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from likewise.config import Train, to_dict
from likewise.config.spec import build
from likewise.contracts import Confidence, NoiseModel
from likewise.data.fingerprint import fingerprint
from likewise.data.loader import choose_workers
from likewise.distributed.collectives import cores
from likewise.durations import period_of, steps_of
from likewise.errors import DiskFull, OutOfMemory, RunBusy
from likewise.evaluation.evaluate import check_plan
from likewise.io.processes import command, is_stopped
from likewise.runs.folder import Run
from likewise.runs.identity import find_run
from likewise.runs.open import load_items, make_protocol, resolve, similarity_of
from likewise.training.fit import train
from likewise.training.interrupts import stop_on_signal
from likewise.types import Items, LikewiseError

TRIES = 3
"""How often a training is begun, or taken up, when its process is killed."""


@dataclass(frozen=True)
class Job:
    """One training: its settings in full, `out` included, and what makes it itself."""

    config: Train
    identity: str

    @property
    def run(self) -> Run:
        assert self.config.out is not None
        return Run(self.config.out)

    @property
    def state(self) -> str:
        """finished, unfinished (begun, not yet evaluated as asked, or the folder holds another run), or new."""
        if not (self.run.path / "config.json").exists():
            return "new"
        if self.run.about["identity"] != self.identity:
            return "unfinished"  # training it is refused with the reason
        scored = (
            not self.config.evaluate
            or not set(self.config.metrics) - (self.run.scores or {"metrics": {}})["metrics"].keys()
        )
        return "finished" if self.run.done and scored else "unfinished"


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `error`: why it failed; `crashed`: and that no setting is to blame.

    A process that was killed is no end yet: another one goes on from the run's last state, a few times.
    """

    error: str | None = None
    crashed: bool = False


class Planner:
    """Settings -> jobs in a folder. A data set is read once, however many trainings share it."""

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self.folder, self.say = folder, say
        self._items: dict[tuple, tuple[Items, str]] = {}

    def items(self, config: Train) -> tuple[Items, str]:
        """The data of these settings, and its fingerprint."""
        key = (config.data, config.root, config.skip_bad)
        if key not in self._items:
            items = load_items(
                config.data, config.root, skip_bad=config.skip_bad, workers=config.workers, quiet=True, say=self.say,
                allow_imports=config.allow_imports,
            )  # fmt: skip
            self._items[key] = items, fingerprint(items)
        return self._items[key]

    def job(self, config: Train) -> Job:
        """The job of these settings. What cannot work is refused here, as far as can be seen without a network."""
        items, data = self.items(config)
        config = replace(resolve(config, items), quiet=True, again=False, out=None)
        similarity_of(config)  # builds the loss
        rows = np.arange(len(items))
        facts = {
            "class_names": items.class_name, "taxonomy": items.taxonomy, "rows": rows, "samples": len(items),
            "classes": items.classes,
            "dim": config.dim, "labels": items.y, "per_pass": 100, "steps": 100,
        }  # fmt: skip
        for text, kind in ((config.noise, NoiseModel), (config.confidence, Confidence)):
            if text:
                build(text, kind, allow_imports=config.allow_imports, **facts)
        for name in ("length", "warmup", "schedule_every", "validate_every", "peek_every"):
            steps_of(getattr(config, name) or "1", 100, name)
        period_of(config.checkpoint_every, 100, "checkpoint_every")
        check_plan(config, items, make_protocol(config))
        claim = find_run(config, items, data)
        return Job(replace(config, out=str(self.folder / claim.run.path.name)), claim.about["identity"])


class Crew:
    """Trains what it is handed, quietly: a crew of one here, a larger one in child processes, one training at a time each.

    A child reads settings from its stdin. Closing that asks it to stop: it saves what a resumed training needs. So it does
    too when this process dies.
    """

    def __init__(self, size: int, say: Callable[[str], None] = print):
        if size < 1:
            raise LikewiseError(f"crew: jobs must be 1 or more, got {size}")
        self.size, self.say = size, say
        self._pool = ThreadPoolExecutor(size)
        self._places: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self._busy: set[Child] = set()
        for _ in range(size):
            self._places.put(None)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *problem) -> None:
        self._pool.shutdown(cancel_futures=True)
        while not self._places.empty():
            _end([child] if (child := self._places.get()) else [])

    def work(self, configs: Sequence[Train]) -> Generator[tuple[int, Outcome], None, None]:
        """Train them all; the place of each and how it ended, as they end. Leaving early stops the others politely."""
        if self.size == 1:
            for place, config in enumerate(configs):
                error, crashed, _ = attempt(config)
                yield place, Outcome(error, crashed)
            return
        waiting = {self._pool.submit(self._one, config): place for place, config in enumerate(configs)}
        with stop_on_signal() as stop:
            try:
                while waiting:
                    for future in wait(waiting, 0.2, FIRST_COMPLETED).done:
                        yield waiting.pop(future), future.result()
                    self._report_stopped()
                    if stop.is_set():
                        raise KeyboardInterrupt("stopped; the same command goes on from there")
            finally:
                running = [future for future in waiting if not future.cancel()]
                while running:  # one may just be starting
                    _end(list(self._busy))
                    running = list(wait(running, 0.2).not_done)

    def _report_stopped(self) -> None:
        """Say once of every child that is suspended what to do about it: it is waited for as long as it takes."""
        for child in list(self._busy):
            stopped = is_stopped(child.pid)
            if stopped and not child.stopped:
                self.say(
                    f"process {child.pid}, which trains, is stopped: `kill -CONT {child.pid}` lets it go on, "
                    f"`kill -KILL {child.pid}` has another process take its training up"
                )
            child.stopped = stopped

    def _one(self, config: Train) -> Outcome:
        if config.workers < 0:
            config = replace(config, workers=choose_workers(-1) // self.size)
        child = self._places.get()
        for _ in range(TRIES):
            if child is None or child.lost or child.stdin.closed:  # none yet, or it was killed, or asked to stop
                child = Child(self.size)
            self._busy.add(child)
            try:
                error, crashed, leaves = child.ask(config)
            finally:
                self._busy.discard(child)
            if not child.lost:
                break
        self._places.put(None if leaves else child)
        return Outcome(error, crashed)


class Child(subprocess.Popen):
    """A process that runs `serve`. `share`: among how many it shares the machine."""

    stdin: IO[str]
    stdout: IO[str]

    def __init__(self, share: int):
        threads = {"OMP_NUM_THREADS": str(max(1, cores() // share))} if share > 1 else {}
        self.words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.stopped = False  # suspended when it was last looked at
        super().__init__(
            command("likewise.experiments.jobs:serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words,
            text=True, encoding="utf-8", env=threads | os.environ,
            start_new_session=True,  # Ctrl-C reaches the parent only, which passes it on
        )  # fmt: skip

    @property
    def lost(self) -> bool:
        """Whether it ended while it was asked something, and not because it was told to."""
        return self.returncode is not None and not self.stdin.closed

    def ask(self, config: Train) -> tuple[str | None, bool, bool]:
        """Have it train this, and wait: what `attempt` says."""
        try:
            self.stdin.write(json.dumps(to_dict(config)) + "\n")
            self.stdin.flush()
            line = self.stdout.readline()
        except (OSError, ValueError):  # it died, or was asked to stop
            line = ""
        return tuple(json.loads(line)) if line else (self.last_words(), True, True)

    def last_words(self) -> str:
        code = self.wait()
        self.words.seek(0)
        lines = self.words.read().strip().splitlines()
        return f"the process ended with code {code}{f': {lines[-1]}' if lines else ''}"


def _end(children: list[Child]) -> None:
    """Ask them to stop and wait; whoever cannot wait and presses Ctrl-C again kills them."""
    try:
        for child in children:
            with contextlib.suppress(OSError):
                child.stdin.close()
            if is_stopped(child.pid):
                child.send_signal(signal.SIGCONT)  # else it could not end
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        for child in children:
            child.kill()
        raise


def serve() -> None:
    """What a child does: one training a line of its stdin, one line of JSON in answer, until stdin ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have handed down deafness
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else is taken for an answer
    # A thread that waits on sys.stdin holds its lock, and a process forked to read pictures would wait for it for ever.
    asked, sys.stdin = os.fdopen(os.dup(0), encoding="utf-8"), open(os.devnull, encoding="utf-8")  # noqa: SIM115
    tasks: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def listen() -> None:
        for line in asked:
            tasks.put(line)
        tasks.put(None)
        _thread.interrupt_main()

    try:
        threading.Thread(target=listen, daemon=True).start()
        while (line := tasks.get()) is not None:
            settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
            answer = attempt(Train(**settings))
            print(json.dumps(answer), file=answers, flush=True)
            if answer[2]:
                return
    except KeyboardInterrupt:
        return


def attempt(config: Train) -> tuple[str | None, bool, bool]:
    """Train, and say what went wrong, whether no setting is to blame, and whether this process had better end.

    A run that another process is training is waited for.
    """
    while True:
        try:
            train(config, say=lambda line: None)
            return None, False, False
        except RunBusy:
            time.sleep(1)
        except LikewiseError as error:
            return str(error), isinstance(error, DiskFull), isinstance(error, OutOfMemory)
        except Exception as error:
            return f"{type(error).__name__}: {error}", True, True
