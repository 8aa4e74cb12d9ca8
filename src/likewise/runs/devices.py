"""The device that a command works on, and amounts of memory written as text."""

from __future__ import annotations

import os
import re

import torch

from likewise.distributed.collectives import started
from likewise.errors import LikewiseError


def choose_device(name: str | None) -> torch.device:
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and started() > 1:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # each of the processes that torchrun started has its own
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LikewiseError(f"device '{name}' cannot be used here ({reason}); use --device cpu") from None
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # kernels of our own, graphs and events go where this says
    return device


def bytes_of(text: str) -> int:
    """ "512MB" as a number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])i?B?", text.strip(), re.IGNORECASE)
    if not found or not float(found[1]):
        raise LikewiseError(f"memory must be an amount such as '512MB' or '4GB', got '{text}'")
    return int(float(found[1]) * 1024 ** (1 + "KMG".index(found[2].upper())))
