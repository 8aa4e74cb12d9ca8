"""Measured times of execution modes, kept between processes: the next training of the same network does not measure again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from likewise.core.files import atomic_write, cache_folder
from likewise.core.types import LikewiseError
from likewise.runs.engine.compiled_kernels import kernel_key

Mode = Literal["eager", "graph", "compile"]

MODE_NAMES: tuple[Mode, ...] = ("eager", "graph", "compile")
"""Execution modes in the order in which they are tried."""


def read_times(network: nn.Module, x: Tensor, bf16: bool) -> dict[Mode, float]:
    """Return milliseconds per step in every mode that this machine measured for such a network and batch; {} without any."""
    try:
        stored = json.loads(_file(network, x, bf16).read_text("utf-8"))
        times: dict[Mode, float] = {mode: float(stored[mode]) for mode in MODE_NAMES if mode in stored}
    except (OSError, ValueError, TypeError):  # not measured yet, or a damaged file
        return {}
    return times if all(0 < ms < math.inf for ms in times.values()) else {}


def write_times(network: nn.Module, x: Tensor, bf16: bool, times: Mapping[Mode, float]) -> None:
    """Keep the times of the modes that worked. A mode that failed is tried again: the memory may have been full."""
    file = _file(network, x, bf16)
    with suppress(OSError, LikewiseError):  # a full or read-only disk: the next process measures again
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as aside:
            aside.write_text(json.dumps({mode: round(ms, 3) for mode, ms in times.items() if ms < math.inf}), "utf-8")


def _file(network: nn.Module, x: Tensor, bf16: bool) -> Path:
    return cache_folder() / "kernels" / "times" / f"{kernel_key(network, x, bf16)}.json"
