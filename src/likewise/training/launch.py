"""Several processes of this machine that train one run, each on its own GPU: what `--gpus` starts.

By hand, since torchrun buries what the user is to read under tracebacks of its own; several machines are its business.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from likewise import errors
from likewise.config import Train, to_dict
from likewise.distributed.collectives import cores, started, world
from likewise.io.processes import command
from likewise.runs.folder import Run
from likewise.training.interrupts import stop_on_signal
from likewise.types import LikewiseError

PATIENCE = 120.0
"""Seconds that processes have to end, once one of them was lost."""


def is_started() -> bool:
    """Whether this process is one of several already."""
    return started() > 1 or world()[1] > 1


def launch(config: Train) -> Run:
    """Train in so many processes, and hand back the run."""
    must_be_there(config)
    assert config.gpus is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(config.gpus)}
    meet |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // config.gpus)))}
    with tempfile.TemporaryDirectory() as folder, stop_on_signal() as stop:
        Path(folder, "config.json").write_text(json.dumps(to_dict(config)), "utf-8")
        words = command("likewise.training.launch:work", folder)
        processes = [
            subprocess.Popen(
                words, env=os.environ | meet | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, process_group=0
            )
            for rank in range(config.gpus)
        ]
        try:
            wait_for(processes, stop)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        answers = [Path(folder, f"{rank}.json") for rank in range(config.gpus)]
        told = [json.loads(file.read_text("utf-8")) if file.exists() else {} for file in answers]
    return outcome(told, [process.returncode for process in processes], stop.is_set())


def must_be_there(config: Train) -> None:
    """As many GPUs as asked for, unless it is the CPU that is to be shared."""
    if config.device == "cpu":
        return
    there = torch.cuda.device_count()
    if config.device not in (None, "cuda") or (config.gpus or 0) > there:
        raise LikewiseError(
            f"train: --gpus {config.gpus} takes so many GPUs, and here are {there}"
            + (f", of which --device {config.device} is one" if config.device not in (None, "cuda") else "")
            + "; give fewer, or train in so many processes on the CPU with --device cpu"
        )


def wait_for(processes: list[subprocess.Popen], stop) -> None:
    """Until all have ended. A wish to stop is passed on; when one is lost, the others cannot go on and are asked to end."""
    asked, since = False, None
    while any(process.poll() is None for process in processes):
        if stop.is_set() and not asked:
            asked = True
            for process in processes:
                process.send_signal(signal.SIGTERM)
        if since is None and any(process.poll() for process in processes):
            since = time.monotonic()
        if since is not None and time.monotonic() - since > (PATIENCE if asked else 2):
            for process in processes:
                process.send_signal(signal.SIGKILL if asked else signal.SIGTERM)
            asked = True
        time.sleep(0.05)


def outcome(told: list[dict], codes: list[int], stopped: bool = False) -> Run:
    """What the user is told: what was found wrong, before a request to stop, before a process that was lost."""
    for answer in told:
        if "error" in answer:
            raise getattr(errors, answer.get("kind", ""), LikewiseError)(answer["error"])
    for answer in told:
        if "stopped" in answer:
            raise KeyboardInterrupt(answer["stopped"])
    if stopped and any(codes):  # before or after the steps, where nobody is asked
        raise KeyboardInterrupt("stopped; the same command goes on from there")
    lost = [rank for rank, code in enumerate(codes) if code]
    if lost:
        killed = [rank for rank in lost if codes[rank] < 0 and not told[rank]] or lost
        raise LikewiseError(
            f"train: process {killed[0]} of {len(codes)} was lost (exit code {codes[killed[0]]}); the last saved state is sound, "
            "and the same command goes on from there"
        )
    return Run(told[0]["run"])


def work() -> None:
    """What each process does."""
    from likewise.training.fit import train

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    config = Train(**settings)
    answer, code = {}, 0
    try:
        answer = {"run": str(train(config).path)}
    except LikewiseError as error:
        answer, code = {"error": str(error), "kind": type(error).__name__}, 2
    except KeyboardInterrupt as stop:
        answer, code = {"stopped": str(stop) or "stopped"}, 130
    except RuntimeError as error:
        if not is_loss(error):
            raise
        code = 1
    finally:
        (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(answer), "utf-8")
    sys.stdout.flush()
    os._exit(code)  # without the rest of a group that may have lost a member


def end_with(parent: int) -> None:
    """Once this process's parent is gone, it is asked to stop: nobody else would."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


def is_loss(error: RuntimeError) -> bool:
    """Whether an error only says that another process went away."""
    return isinstance(error, torch.distributed.DistError) or any(
        word in str(error) for word in ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo")
    )
