"""environment.json of a run: versions, hardware, and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from likewise.core.distributed.collectives import cores


def environment(device: torch.device) -> dict:
    """Return versions, hardware and commit, for environment.json."""
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


def open_nvml() -> Any:
    """Return the module pynvml, initialised; None without the extra `gpu`, or without an NVIDIA driver."""
    with suppress(Exception):  # ImportError, or an error of NVML
        import pynvml

        pynvml.nvmlInit()
        return pynvml


def driver_version(nvml: Any) -> str | None:
    """Return the version of the NVIDIA driver; None if it cannot be read."""
    with suppress(Exception):
        return nvml.nvmlSystemGetDriverVersion()


def device_name(device: torch.device) -> str:
    """Return the model of the GPU or the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """Return the model of the CPU; its architecture if the system does not provide the model."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8", "replace").splitlines() if file.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, "") or platform.processor() or platform.machine()


def hardware(device: torch.device) -> dict:
    """Return CPU, cores and memory (in bytes) of this machine, and its GPUs if `device` is one."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    found = {"cpu": cpu_name(), "cores": os.cpu_count(), "cores_allowed": cores(), "memory": memory}
    if device.type == "cuda":
        found |= {
            "gpu": device_name(device), "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda,
            "gpu_memory": torch.cuda.get_device_properties(device).total_memory, "driver": driver_version(open_nvml()),
        }  # fmt: skip
    return found


@cache  # the commit of the loaded code must not change if the checkout changes later
def commit() -> str | None:
    """Return the commit of the checkout of this package, with "+" if files have changed; None if it is not a checkout."""

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
