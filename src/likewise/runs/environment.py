"""What made a run besides its settings: versions, hardware, the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from likewise.distributed.collectives import cores
from likewise.runs.power import driver_version, open_nvml


def environment(device: torch.device) -> dict:
    """Versions, hardware and commit: what a reader needs to trust or repeat a run."""
    versions = {}
    for name in ("likewise", "torch", "torchvision", "timm", "numpy", "pillow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "versions": versions,
        "platform": platform.platform(),
        "device": {"type": device.type, "name": device_name(device), "threads": torch.get_num_threads()},
        "hardware": hardware(device),
        "commit": commit(),
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """The model, where the system tells it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8", "replace").splitlines() if file.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, "") or platform.processor() or platform.machine()


def hardware(device: torch.device) -> dict:
    """Of this machine; of its GPUs where one of them trains. Memory in bytes."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    found = {"cpu": cpu_name(), "cores": os.cpu_count(), "cores_allowed": cores(), "memory": memory}
    if device.type == "cuda":
        found |= {
            "gpu": device_name(device), "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda,
            "gpu_memory": torch.cuda.get_device_properties(device).total_memory, "driver": driver_version(open_nvml()),
        }  # fmt: skip
    return found


@cache  # of the code that was loaded, whatever happens to the checkout meanwhile
def commit() -> str | None:
    """Commit of the checkout this package runs from, with "+" if it was changed since; None for an installed one."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None
