"""What tests of executors share: a training whose process is killed on the way, and what must come of it."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
from likewise.config import Train

from likewise.papers.executors import Outcome, attempt
from likewise.runs.folder import Run
from likewise.runs.usage import cost, sessions

LONG = {"steps": 400, "checkpoint_every": "5", "log_every": 5}
"""Long enough to be killed on the way."""


def wait_until(holds, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def kill_on_the_way(run: Run) -> threading.Thread:
    """Kill whoever trains this run, once it has saved something and gone on."""

    def kill() -> None:
        wait_until(lambda: (run.path / "state.pt").exists() and len(run.read_log()) > 3)
        os.kill(json.loads((run.path / "lock").read_text())["pid"], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def check_that_a_kill_loses_nothing(executor, planner, settings) -> None:
    """Four trainings, two at a time; the process of the second is killed."""
    jobs = [planner.job(Train(**settings | LONG | {"seed": seed})) for seed in range(4)]
    killer, ended, done = kill_on_the_way(jobs[1].run), [], {}
    for place, outcome in executor.work([job.config for job in jobs]):
        ended.append(place)
        assert outcome == Outcome()
        done[place] = (jobs[place].run.path / "done").stat().st_mtime_ns
    killer.join()
    assert sorted(ended) == [0, 1, 2, 3]  # none is lost, none is told twice
    for place, job in enumerate(jobs):
        assert job.state == "finished" and not (job.run.path / "lock").exists()
        assert (job.run.path / "done").stat().st_mtime_ns == done[place]
        assert [line["step"] for line in job.run.read_log()] == list(range(5, 401, 5))
        steps = [session["steps"] for session in sessions(job.run)]
        if place == 1:
            (first, saved), (goes_on, last) = steps
            assert first == 0 and 0 < saved <= goes_on < last == 400  # from its checkpoint, not from the start
        else:
            assert steps == [[0, 400]]
        assert cost(job.run)["train_seconds"] > 0 and cost(job.run)["evaluate_seconds"] > 0
    alone = replace(jobs[1].config, out=str(planner.folder / "alone"))
    assert attempt(alone) == (None, False, False)
    assert Run(alone.out).scores == jobs[1].run.scores
    assert (Run(alone.out).path / "model.safetensors").read_bytes() == (
        jobs[1].run.path / "model.safetensors"
    ).read_bytes()


def check_that_a_wish_to_stop_is_heard(executor, planner, settings) -> None:
    """Ctrl-C while two of three train: what they learned is saved, and the third is not begun."""
    jobs = [planner.job(Train(**settings | {"steps": 1000000, "seed": seed})) for seed in (0, 1, 2)]

    def interrupt() -> None:
        try:
            wait_until(lambda: all(len(job.run.read_log()) > 2 for job in jobs[:2]))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt, match="run the same command again to resume"):
        list(executor.work([job.config for job in jobs]))
    for job in jobs[:2]:
        assert job.state == "unfinished"
        assert not (job.run.path / "lock").exists()
        last = job.run.load_state()["step"]
        assert last >= 30
        assert job.run.read_log()[-1]["step"] in range(last - 9, last + 1)  # saved when asked to, nothing is lost
    assert jobs[2].state == "new"
