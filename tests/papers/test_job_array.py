"""The job array of docs/clusters.md: its script is run with a fake array index, and its command with the real program."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from likewise.cli import main as cli
from likewise.papers.grid import adapted, cells, chosen, read_grid

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text("utf-8")
SCRIPT = next(text for text in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if "#SBATCH" in text)
PROGRAMS = {"likewise": 'echo "$*" >> "$HEARD"; eval "${BEHAVE:-}"', "scontrol": 'echo "scontrol $*" >> "$HEARD"'}
SAVES = 'trap "sleep 0.3; echo saved >> $HEARD; exit $CODE" TERM; echo ready >> $HEARD; while :; do sleep 0.05; done'
"""A training that takes its time to save when it is asked to stop."""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="bash")


@pytest.fixture
def start(tmp_path):
    """Start the script as Slurm does, with programs that only record their arguments in `heard`."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "array.sh").write_text(SCRIPT)
    ours = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HEARD": str(tmp_path / "heard")}
    ours |= {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "77"}
    return lambda **more: subprocess.Popen(["bash", "array.sh"], env=os.environ | ours | more, cwd=tmp_path)


def heard(folder):
    file = folder / "heard"
    return file.read_text().splitlines() if file.exists() else []


def test_a_task_trains_the_cell_of_its_number(start, tmp_path):
    assert start(BEHAVE="exit 2").wait(600) == 2
    (words,) = heard(tmp_path)
    config = cli.parse("bench", shlex.split(words)[1:])
    grid = adapted(read_grid(config.grid), config.data, config.root)
    assert chosen(cells(grid), config.only) == [1] and config.only == ("2",)
    assert f"--array=1-{len(cells(grid))} " in SCRIPT


@pytest.mark.parametrize(("how", "code", "then"), [
    (signal.SIGUSR1, 130, ["scontrol requeue 77_2"]),  # out of time: it queues itself again
    (signal.SIGUSR1, 0, []),  # it came to its end meanwhile
    (signal.SIGTERM, 130, []),  # preempted, which Slurm sees to, or cancelled, which must not be undone
])  # fmt: skip
def test_a_task_that_must_stop_saves_first(start, tmp_path, how, code, then):
    task, end = start(BEHAVE=SAVES, CODE=str(code)), time.monotonic() + 600
    while "ready" not in heard(tmp_path) and time.monotonic() < end:
        time.sleep(0.02)
    task.send_signal(how)
    assert task.wait(600) == code and heard(tmp_path)[1:] == ["ready", "saved", *then]
