"""Choose the device of a command, and parse amounts of memory."""

from __future__ import annotations

import os
import re

import torch

from likewise.distributed.collectives import started
from likewise.errors import LikewiseError


def choose_device(name: str | None) -> torch.device:
    """Return the device of this name; None: CUDA if available, else MPS, else the CPU. Raises if it cannot be used."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and started() > 1:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # every process of torchrun has its own GPU
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LikewiseError(f"device: '{name}' cannot be used on this machine ({reason}); use --device cpu") from None
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # Triton kernels, CUDA graphs and events use the current device
    return device


def bytes_of(text: str) -> int:
    """Return an amount of memory in bytes: bytes_of("512MB") is 536870912."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])i?B?", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise LikewiseError(f"memory: must be an amount such as '512MB' or '4GB', got '{text}'")
    return int(float(match[1]) * 1024 ** (1 + "KMG".index(match[2].upper())))
