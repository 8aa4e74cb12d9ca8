from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture
def write(tmp_path):
    """Write a text file below tmp_path and return its path as text."""

    def text(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return str(tmp_path / name)

    return text


class _Sizes(TorchDispatchMode):
    """Stores the number of elements of the largest tensor that an operation returns; views of a tensor count, too."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return out


@pytest.fixture
def largest_tensor() -> Callable[[Callable], int]:
    """Return the number of elements of the largest tensor that a call makes."""

    def measure(call: Callable) -> int:
        with _Sizes() as sizes:
            call()
        return sizes.largest

    return measure
