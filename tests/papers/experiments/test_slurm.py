"""Scripts for Slurm: really run, task after task, with a `likewise` and a `scontrol` that only write down what they hear."""

import os
import shlex
import signal
import subprocess
import time

import pytest
from likewise.config import Bench

from likewise.cli import main as cli
from likewise.papers.slurm import script, words_of

WORDS = ["bench", "my grid.toml", "--set", "size=160", "terms.encoder=models/a b", "--out", "it's here"]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="bash")


@pytest.fixture
def cluster(tmp_path):
    """`cluster(text)`: the script as a file that bash finds nothing wrong with; `heard`: what was said to whom."""
    programs = {
        "likewise": 'for word; do echo "$word"; done >> "$HEARD"; echo . >> "$HEARD"; eval "${BEHAVE:-}"',
        "scontrol": 'echo "scontrol $*" >> "$HEARD"',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    def cluster(text):
        file = tmp_path / "table.sh"
        file.write_text(text)
        subprocess.run(["bash", "-n", str(file)], check=True)
        return file

    return cluster


def start(file, task, **more):
    """As Slurm would start it."""
    folder = file.parent
    ours = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HEARD": str(folder / "heard")}
    ours |= {
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_JOB_ID": "77",
        "SLURM_JOB_ID": "77",
    }  # the last task's is the array's
    return subprocess.Popen(["bash", str(file)], env=os.environ | ours | more, cwd=folder)


def heard(file):
    text = (file.parent / "heard").read_text() if (file.parent / "heard").exists() else ""
    return [block.splitlines() for block in text.split(".\n") if block]


def options(text):
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH --")]
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_task_trains_its_cell(cluster):
    file = cluster(script(WORDS, 3, "my-table", "out/slurm"))
    text = file.read_text()
    assert options(text)["array"] == "1-3" and options(text)["output"] == "out/slurm/%A_%a.txt"
    assert options(text)["job-name"] == "my-table" and "#SBATCH --requeue\n" in text
    for task in (1, 2, 3):
        assert start(file, task).wait(600) == 0
    assert heard(file) == [[*WORDS, "--only", str(task)] for task in (1, 2, 3)]


def test_an_array_too_long_is_cut_so_that_every_cell_is_trained_once(cluster):
    file = cluster(script(["bench", "large"], 2501))
    tasks = int(options(file.read_text())["array"].removeprefix("1-"))
    assert tasks == 834  # three a task, the last one two
    for task in (1, 2, 833, 834):
        assert start(file, task).wait(600) == 0
    cells = [words[words.index("--only") + 1 :] for words in heard(file)]
    assert cells == [["1", "2", "3"], ["4", "5", "6"], ["2497", "2498", "2499"], ["2500", "2501"]]
    assert options(script(["bench", "large"], 1000))["array"] == "1-1000"


def test_the_table_is_printed_by_the_job_that_waits_for_the_array(cluster):
    text = script(WORDS, 3, logs="out/slurm")
    (line,) = [line for line in text.splitlines() if "--dependency=afterany:$job" in line]
    wrapped = next(word for word in shlex.split(line.removeprefix("#")) if word.startswith("--wrap="))
    there = ["cd", os.getcwd(), "&&"]
    assert shlex.split(wrapped.removeprefix("--wrap=")) == [*there, "likewise", *WORDS, "--no-train"]


def test_paths_start_where_the_script_was_made(cluster, tmp_path, monkeypatch):
    """It may be submitted from anywhere: runs are looked for where they were planned."""
    planned = tmp_path / "it's $HOME"
    planned.mkdir()
    monkeypatch.chdir(planned)
    file = cluster(script(["bench", "x"], 3))
    assert start(file, 1, BEHAVE='pwd >> "$HEARD"').wait(600) == 0
    assert heard(file)[1:] == [[str(planned)]]
    planned.rmdir()
    assert start(file, 2).wait(600) == 2 and len(heard(file)) == 2


def test_a_failure_is_the_tasks_own(cluster):
    file = cluster(script(WORDS, 3))
    assert start(file, 1, BEHAVE="exit 2").wait(600) == 2
    assert heard(file) == [[*WORDS, "--only", "1"]]  # nothing is queued again


SAVES = 'trap "sleep 0.3; echo saved >> $HEARD; exit $CODE" TERM; echo ready >> $HEARD; while :; do sleep 0.05; done'
"""A training that takes its time to save when it is asked to stop."""


@pytest.mark.parametrize(("how", "code", "then"), [
    (signal.SIGUSR1, 130, ["scontrol requeue 77_2"]),  # out of time: it queues itself again
    (signal.SIGUSR1, 0, []),  # it came to its end meanwhile
    (signal.SIGTERM, 130, []),  # preempted, which Slurm sees to, or cancelled, which must not be undone
])  # fmt: skip
def test_a_task_that_must_stop_saves_first(cluster, how, code, then):
    file = cluster(script(["bench", "x"], 3))
    task = start(file, 2, BEHAVE=SAVES, CODE=str(code))
    end = time.monotonic() + 600
    while ["ready"] not in heard(file) and time.monotonic() < end:
        time.sleep(0.02)
    task.send_signal(how)
    assert task.wait(600) == code
    assert heard(file)[1:] == [["ready", "saved", *then]]


def test_a_signal_before_the_training_is_known_is_not_lost(cluster):
    file = cluster(script(["bench", "x"], 3).replace("training=$!\n", "sleep 0.5; training=$!\n"))
    task = start(file, 2, BEHAVE=SAVES, CODE="130")
    end = time.monotonic() + 600
    while ["ready"] not in heard(file) and time.monotonic() < end:
        time.sleep(0.02)
    task.send_signal(signal.SIGTERM)
    assert task.wait(600) == 130 and heard(file)[1:] == [["ready", "saved"]]


def test_the_words_give_the_same_settings_again():
    config = Bench(
        "my grid.toml", data="cub200", set=("size=160", "lr=1e-3"), quick=True, metrics=("R@1", "MAP@R"), device="cuda",
        out="x y", only=("seed=0",), jobs=4, executor="ray", gpus_per_run=0.5, slurm="job.sh", list=True,
    )  # fmt: skip
    command, *words = words_of(config)
    assert command == "bench"
    again = cli.parse(command, words)
    kept = ("grid", "data", "root", "set", "quick", "metrics", "device", "out", "allow_imports", "quiet")
    assert {k: getattr(again, k) for k in kept} == {k: getattr(config, k) for k in kept}
    assert again == Bench(**{k: getattr(config, k) for k in kept})
    assert words_of(Bench("g")) == ["bench", "g"]
