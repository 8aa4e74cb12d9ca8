"""Choose the device of a command, start it early, and parse amounts of memory."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress

import torch
from torch.nn import functional as F

from likewise.core.distributed.collectives import started
from likewise.core.errors import LikewiseError


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


def start_device(name: str | None, bf16: bool) -> threading.Thread | None:
    """Start a thread that loads the libraries of a GPU, while the caller imports modules and reads data; None for a CPU.

    Join the thread before a CUDA graph is captured. It reports no error: `choose_device` and the training do.

    Args:
        name: device of the settings, see `choose_device`.
        bf16: the training runs in bfloat16 autocast.
    """

    def start() -> None:
        with suppress(Exception):
            device = choose_device(name)
            if device.type == "cuda":
                use_libraries(device, bf16)

    if name is not None and not name.startswith("cuda"):
        return None
    thread = threading.Thread(target=start, name="start of the device")  # not a daemon: CUDA may crash in a late thread
    thread.start()
    return thread


def use_libraries(device: torch.device, bf16: bool) -> None:
    """Run small convolutions and a matrix product in both directions, so that their libraries are loaded.

    It draws no random numbers: the generators belong to the training.
    """
    x = torch.zeros(8, 3, 64, 64, device=device).contiguous(memory_format=torch.channels_last)
    shapes = (64, 3, 7, 7), (64, 64, 3, 3), (64, 64, 1, 1)
    kernels = [torch.zeros(s, device=device).contiguous(memory_format=torch.channels_last) for s in shapes]
    head = torch.zeros(64, 64, device=device, requires_grad=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for kernel in kernels:
            x = F.conv2d(x, kernel.requires_grad_(), stride=2, padding=kernel.shape[-1] // 2)
            x = F.relu(F.batch_norm(x, None, None, training=True))
        z = x.mean((2, 3)) @ head
    z.sum().backward()
    wait_for_device(device)


def wait_for_device(device: torch.device) -> None:
    """Return when a GPU has done the work that was started on it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def bytes_of(text: str) -> int:
    """Return an amount of memory in bytes: bytes_of("512MB") is 536870912."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])i?B?", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise LikewiseError(f"memory: must be an amount such as '512MB' or '4GB', got '{text}'")
    return int(float(match[1]) * 1024 ** (1 + "KMG".index(match[2].upper())))


def free_memory() -> int | None:
    """Return how many bytes of main memory programs can still get; None where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    return 1024 * kilobytes
