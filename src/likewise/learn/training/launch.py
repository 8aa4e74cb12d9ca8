"""Start several processes on this machine that train one run, each on its own GPU (`--gpus`).

torchrun is not used because its tracebacks hide the error messages for the user. It is still the way to use several machines.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from likewise.core import errors
from likewise.core.distributed.collectives import cores, started, world
from likewise.core.distributed.process_group import PeerLost
from likewise.core.processes import STOPPED_MESSAGE, Child, command, stop_with_parent, wait_together
from likewise.core.settings import Train, to_dict
from likewise.core.settings.setting_values import from_dict
from likewise.core.types import LikewiseError
from likewise.learn.training.loop import stop_on_signal
from likewise.runs.folder import Run


def is_started() -> bool:
    """Return whether this process is already one of several that train together."""
    return started() > 1 or world()[1] > 1


def launch(config: Train, train: str, say: Callable[[str], None] = print) -> Run:
    """Train in `config.gpus` processes, and return the run.

    Args:
        train: "module:function" that every process calls with the config, and that returns the run.
        `say`: if `print`, or `show` of the command line, the first process writes its messages to stdout; otherwise to stderr,
            or nowhere if quiet.
    """
    check_gpus(config)
    assert config.gpus is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(config.gpus)}
    meet |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // config.gpus)))}
    with tempfile.TemporaryDirectory() as folder, stop_on_signal() as stop:
        Path(folder, "config.json").write_text(json.dumps(to_dict(config)), "utf-8")
        # Not by identity: some libraries replace the built-in. `show` is the print of the command line.
        prints = getattr(say, "__name__", "") in ("print", "show")
        stream = "stdout" if prints else "none" if config.quiet else "stderr"
        words = command("likewise.learn.training.launch:work", train, stream, folder)
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(config.gpus)]
        codes = wait_together([Child(words, os.environ | meet | rank) for rank in ranks], stop)
        files = [Path(folder, f"{rank}.json") for rank in range(config.gpus)]
        reports = [json.loads(file.read_text("utf-8")) if file.exists() else {} for file in files]
    return outcome(reports, codes, stop.is_set())


def check_gpus(config: Train) -> None:
    """Raise unless this machine has `config.gpus` GPUs, or all processes share the CPU."""
    if config.device == "cpu":
        return
    available = torch.cuda.device_count()
    if config.device not in (None, "cuda"):
        raise LikewiseError(
            f"train: --gpus {config.gpus} trains on several GPUs, but --device {config.device} selects one device; "
            "omit --device, or train in several processes on the CPU with --device cpu"
        )
    if (config.gpus or 0) > available:
        raise LikewiseError(
            f"train: --gpus {config.gpus} needs {config.gpus} GPUs, but this machine has {available}; "
            "lower --gpus, or train in several processes on the CPU with --device cpu"
        )


def outcome(reports: list[dict], codes: list[int], stopped: bool = False) -> Run:
    """Return the run, or raise: first an error that a process reported, then a request to stop, then a lost process.

    Args:
        reports: what every process wrote into its file; empty for a process that was killed.
        codes: exit code of every process.
    """
    for report in reports:
        if "error" in report:
            raise getattr(errors, report.get("kind", ""), LikewiseError)(report["error"])
    for report in reports:
        if "stopped" in report:
            raise KeyboardInterrupt(report["stopped"])
    if stopped and any(codes):  # stopped before or after the loop: the processes report nothing
        raise KeyboardInterrupt(STOPPED_MESSAGE)
    lost = [rank for rank, code in enumerate(codes) if code]
    if lost:
        killed = [rank for rank in lost if codes[rank] < 0 and not reports[rank]] or lost
        raise LikewiseError(
            f"train: process {killed[0]} of {len(codes)} ended unexpectedly (exit code {codes[killed[0]]}); the last checkpoint "
            "is valid: run the same command to resume from it"
        )
    return Run(reports[0]["run"])


def work() -> None:
    """Train in this process, which `launch` started, and write the outcome to a file named by its rank."""
    stop_with_parent()
    module, function = sys.argv[1].split(":")
    folder = Path(sys.argv[3])
    config = from_dict(Train, json.loads((folder / "config.json").read_text("utf-8")))
    stream = getattr(sys, sys.argv[2], None)
    report, code = {}, 0

    def say(line: str) -> None:
        if stream is not None:
            print(errors.printable(line, keep="\n"), file=stream, flush=True)

    try:
        report = {"run": str(getattr(importlib.import_module(module), function)(config, say).path)}
    except LikewiseError as error:
        report, code = {"error": str(error), "kind": type(error).__name__}, 2
    except KeyboardInterrupt as stop:
        report, code = {"stopped": str(stop) or "stopped"}, 130
    except PeerLost:
        code = 1
    finally:
        (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(report), "utf-8")
    sys.stdout.flush()
    os._exit(code)  # a normal exit would wait for a process group that may have lost a member
