"""Several processes of this machine that train one run, each on its own GPU: what `--gpus` starts.

By hand, since torchrun buries what the user is to read under tracebacks of its own; several machines are its business.
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

from likewise import errors
from likewise.config import Train, to_dict
from likewise.config.checks import from_dict
from likewise.distributed.collectives import cores, started, world
from likewise.distributed.process_group import PeerLost
from likewise.io.processes import command
from likewise.io.supervisor import STOPPED, Child, heed_parent, wait_together
from likewise.runs.folder import Run
from likewise.training.interrupts import stop_on_signal
from likewise.types import LikewiseError


def is_started() -> bool:
    """Whether this process is one of several already."""
    return started() > 1 or world()[1] > 1


def launch(config: Train, train: str, say: Callable[[str], None] = print) -> Run:
    """Train in `config.gpus` processes, and return the run.

    Args:
        train: "module:function" that every process calls with the config, and that returns the run.
        say: where messages of the first process go: `print` means stdout; for others they go to stderr, unless quiet.
    """
    must_be_there(config)
    assert config.gpus is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(config.gpus)}
    meet |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // config.gpus)))}
    with tempfile.TemporaryDirectory() as folder, stop_on_signal() as stop:
        Path(folder, "config.json").write_text(json.dumps(to_dict(config)), "utf-8")
        prints = getattr(say, "__name__", "") == "print"  # not by identity: some libraries replace the built-in
        stream = "stdout" if prints else "none" if config.quiet else "stderr"
        words = command("likewise.training.launch:work", train, stream, folder)
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(config.gpus)]
        codes = wait_together([Child(words, os.environ | meet | rank) for rank in ranks], stop)
        answers = [Path(folder, f"{rank}.json") for rank in range(config.gpus)]
        told = [json.loads(file.read_text("utf-8")) if file.exists() else {} for file in answers]
    return outcome(told, codes, stop.is_set())


def must_be_there(config: Train) -> None:
    """As many GPUs as asked for, unless it is the CPU that is to be shared."""
    if config.device == "cpu":
        return
    there = torch.cuda.device_count()
    if config.device not in (None, "cuda") or (config.gpus or 0) > there:
        raise LikewiseError(
            f"train: --gpus {config.gpus} needs {config.gpus} GPUs, and this machine has {there}"
            + (f", of which --device {config.device} is one" if config.device not in (None, "cuda") else "")
            + "; give fewer, or train in several processes on the CPU with --device cpu"
        )


def outcome(told: list[dict], codes: list[int], stopped: bool = False) -> Run:
    """Return the run, or raise an error that was found, before a request to stop, before a process that was lost."""
    for answer in told:
        if "error" in answer:
            raise getattr(errors, answer.get("kind", ""), LikewiseError)(answer["error"])
    for answer in told:
        if "stopped" in answer:
            raise KeyboardInterrupt(answer["stopped"])
    if stopped and any(codes):  # before or after the steps, where no process answers
        raise KeyboardInterrupt(STOPPED)
    lost = [rank for rank, code in enumerate(codes) if code]
    if lost:
        killed = [rank for rank in lost if codes[rank] < 0 and not told[rank]] or lost
        raise LikewiseError(
            f"train: process {killed[0]} of {len(codes)} was lost (exit code {codes[killed[0]]}); the last saved state is sound, "
            "and the same command goes on from there"
        )
    return Run(told[0]["run"])


def work() -> None:
    """Train in this process, which `launch` started, and leave the answer in a file named by its rank."""
    heed_parent()
    module, function = sys.argv[1].split(":")
    folder = Path(sys.argv[3])
    config = from_dict(Train, json.loads((folder / "config.json").read_text("utf-8")))
    stream = getattr(sys, sys.argv[2], None)
    answer, code = {}, 0

    def say(line: str) -> None:
        if stream is not None:
            print(line, file=stream, flush=True)

    try:
        answer = {"run": str(getattr(importlib.import_module(module), function)(config, say).path)}
    except LikewiseError as error:
        answer, code = {"error": str(error), "kind": type(error).__name__}, 2
    except KeyboardInterrupt as stop:
        answer, code = {"stopped": str(stop) or "stopped"}, 130
    except PeerLost:
        code = 1
    finally:
        (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(answer), "utf-8")
    sys.stdout.flush()
    os._exit(code)  # without the rest of a group that may have lost a member
