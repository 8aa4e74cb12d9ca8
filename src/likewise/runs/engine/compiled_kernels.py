"""Compiled kernels kept between processes: the folder of torch's compiler, and which networks were compiled before."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from likewise.core.files import cache_folder

MAX_COMPILE_SECONDS = 60.0
"""Assumed duration of compiling a network for the first time on a machine."""

MAX_REUSE_SECONDS = 12.0
"""Assumed duration of compiling with kept kernels: the network is traced again, its kernels are read from disk."""


def compile_kept(network: nn.Module) -> nn.Module:
    """Return the compiled network; its kernels are kept in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR is set."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "kernels"))
    return torch.compile(network, dynamic=False)  # pyright: ignore[reportReturnType]


def expected_seconds(network: nn.Module, x: Tensor, bf16: bool) -> float:
    """Return the seconds that compiling may take: fewer if this machine compiled the network for such a batch before."""
    return MAX_REUSE_SECONDS if _mark(network, x, bf16).exists() else MAX_COMPILE_SECONDS


def mark_compiled(network: nn.Module, x: Tensor, bf16: bool) -> None:
    """Record that the kernels of this network and batch are kept."""
    file = _mark(network, x, bf16)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError:  # a full or read-only disk: the next process compiles again
        return


def _mark(network: nn.Module, x: Tensor, bf16: bool) -> Path:
    """Return the marker file."""
    return cache_folder() / "kernels" / "marks" / kernel_key(network, x, bf16)


def kernel_key(network: nn.Module, x: Tensor, bf16: bool) -> str:
    """Return a hash of all that the kernels of a training step depend on: network, batch, precision, device, torch."""
    learning = [p.requires_grad for p in network.parameters()]
    device = torch.cuda.get_device_name(x.device) if x.device.type == "cuda" else x.device.type
    facts = (str(network), tuple(x.shape), str(x.dtype), bf16, learning, network.training, device, torch.__version__)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]
