"""A table on a Slurm cluster: a script whose array trains one cell a task, and goes on where one was cut short."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, fields

from likewise.config import Bench

MOST = 1000
"""Tasks of an array, as Slurm comes (MaxArraySize is 1001); above it, a task trains several cells."""

ELSEWHERE = ("grid", "only", "jobs", "executor", "gpus_per_run", "slurm", "list", "train")
"""Settings of bench that the script decides, or that would keep a task from training."""

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{tasks}
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --output={logs}/%A_%a.txt
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@300

# {count} cells, {what}. Edit the lines above for your cluster (partition, account, time), and load what
# `likewise` needs below. The folder of the runs must be one that all nodes see. Submit, and have the table when all is done:
#
#   mkdir -p {logs}
#   job=$(sbatch --parsable {file})
#   sbatch --dependency=afterany:$job --output={logs}/table.txt --wrap={table}
#
# A cell that is finished is skipped, so the same script can be submitted again. A task that is preempted, or whose machine
# fails, is queued again by Slurm; one that runs out of time is told five minutes before, saves, and queues itself again.

# module load ...; source .../bin/activate

cd {here} || exit 2  # where paths start, wherever this is submitted from
again= stop= training=
stop() {{ stop=yes; [ -z "$training" ] || kill -TERM "$training"; }}
trap stop TERM
trap 'again=yes; stop' USR1
{cells}
training=$!
[ -z "$stop" ] || kill -TERM "$training"  # a signal came before the number of the process was known
wait "$training"; code=$?
while [ "$code" -gt 128 ] && kill -0 "$training" 2>/dev/null; do  # a signal ends the wait before training has saved
    wait "$training"; code=$?
done
if [ -n "$again" ] && [ "$code" -ne 0 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"  # the number of a job may be that of the whole array
fi
exit "$code"
"""


def script(
    words: Sequence[str], count: int, name: str = "likewise", logs: str = "slurm", file: str = "THIS_FILE"
) -> str:
    """A script for sbatch, whose tasks work in the folder that we are in.

    Args:
        words: what follows `likewise`, without --only.
        count: how many cells there are; they are numbered from 1.
        logs: the folder of what tasks print.
        file: what the script will be called.
    """
    command, here = shlex.join(["likewise", *words]), shlex.quote(os.getcwd())
    each = math.ceil(count / MOST)
    cells, what = f'{command} --only "$SLURM_ARRAY_TASK_ID" &', "one a task"
    if each > 1:
        what = f"{each} a task"
        cells = (
            f"first=$(( (SLURM_ARRAY_TASK_ID - 1) * {each} + 1 ))\n"
            f"last=$(( first + {each - 1} < {count} ? first + {each - 1} : {count} ))\n"
            f'{command} --only $(seq "$first" "$last") &'
        )
    return SCRIPT.format(
        name=shlex.quote(name), tasks=math.ceil(count / each), count=count, what=what, cells=cells,
        logs=shlex.quote(logs), file=shlex.quote(file),
        here=here, table=shlex.quote(f"cd {here} && {command} --no-train"),
    )  # fmt: skip


def words_of(config: Bench) -> list[str]:
    """The words that give a task these settings."""
    words = ["bench", config.grid]
    for field in fields(config):
        value = getattr(config, field.name)
        usual = None if field.default is MISSING else field.default
        if field.name not in ELSEWHERE and value != usual:
            flag = f"--{field.name.replace('_', '-')}"
            words += [flag] if value is True else [flag, *value] if isinstance(value, tuple) else [flag, str(value)]
    return words
