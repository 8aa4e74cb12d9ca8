"""Write a Slurm script that trains a grid as a job array; an interrupted task resumes its training."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, fields

from likewise.core.settings import Bench

MAX_ARRAY_SIZE = 1000
"""Largest number of tasks of an array by default in Slurm (MaxArraySize is 1001); beyond it, a task trains several cells."""

OMITTED_SETTINGS = ("grid", "only", "jobs", "executor", "gpus_per_run", "slurm", "budget", "list", "train")
"""Settings of bench that the script sets itself, or that would prevent training."""

SCRIPT_TEMPLATE = """\
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
# `likewise` needs below. All nodes must share the folder of the runs. Submit it, and write the table after all tasks:
#
#   mkdir -p {logs}
#   job=$(sbatch --parsable {file})
#   sbatch --dependency=afterany:$job --output={logs}/table.txt --wrap={table}
#
# A cell that is finished is skipped, so the same script can be submitted again. A task that is preempted, or whose machine
# fails, is requeued by Slurm; a task that runs out of time gets a signal five minutes before, saves, and requeues itself.

# module load ...; source .../bin/activate

cd {here} || exit 2  # paths are relative to this folder
again= stop= training=
stop() {{ stop=yes; [ -z "$training" ] || kill -TERM "$training"; }}
trap stop TERM
trap 'again=yes; stop' USR1
{cells}
training=$!
[ -z "$stop" ] || kill -TERM "$training"  # a signal came before the process id was known
wait "$training"; code=$?
while [ "$code" -gt 128 ] && kill -0 "$training" 2>/dev/null; do  # a signal ends the wait before training has saved
    wait "$training"; code=$?
done
if [ -n "$again" ] && [ "$code" -ne 0 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"  # SLURM_JOB_ID may be the id of the whole array
fi
exit "$code"
"""


def script(
    words: Sequence[str], count: int, name: str = "likewise", logs: str = "slurm", file: str = "THIS_FILE"
) -> str:
    """Return a script for sbatch, whose tasks run in the current folder.

    Args:
        words: arguments of the command `likewise`, without --only.
        count: number of cells.
        logs: folder of the output of the tasks.
        file: name of the script.
    """
    command, here = shlex.join(["likewise", *words]), shlex.quote(os.getcwd())
    each = math.ceil(count / MAX_ARRAY_SIZE)
    cells, what = f'{command} --only "$SLURM_ARRAY_TASK_ID" &', "one per task"
    if each > 1:
        what = f"{each} per task"
        cells = (
            f"first=$(( (SLURM_ARRAY_TASK_ID - 1) * {each} + 1 ))\n"
            f"last=$(( first + {each - 1} < {count} ? first + {each - 1} : {count} ))\n"
            f'{command} --only $(seq "$first" "$last") &'
        )
    return SCRIPT_TEMPLATE.format(
        name=shlex.quote(name), tasks=math.ceil(count / each), count=count, what=what, cells=cells,
        logs=shlex.quote(logs), file=shlex.quote(file),
        here=here, table=shlex.quote(f"cd {here} && {command} --no-train"),
    )  # fmt: skip


def words_of(config: Bench) -> list[str]:
    """Return the command-line arguments of these settings."""
    words = ["bench", config.grid]
    for field in fields(config):
        value = getattr(config, field.name)
        usual = None if field.default is MISSING else field.default
        if field.name not in OMITTED_SETTINGS and value != usual:
            flag = f"--{field.name.replace('_', '-')}"
            words += [flag] if value is True else [flag, *value] if isinstance(value, tuple) else [flag, str(value)]
    return words
