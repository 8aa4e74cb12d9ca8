"""Compiled operators of torchvision, which timm imports: no network here uses them, but their absence makes the import fail."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

REQUIRED_OPERATORS = ("nms", "qnms")
"""Operators that `import torchvision` expects to be defined."""


@cache
def prepare_torchvision() -> None:
    """Define the operators that `import torchvision` expects, if its compiled part does not load beside this torch.

    Call it before torchvision or timm is imported. The wheels of torchvision on PyPI are compiled for CUDA on Linux; beside a
    torch for CPUs alone their import fails with "operator torchvision::nms does not exist".
    """
    spec = find_spec("torchvision")
    if "torchvision" in sys.modules or spec is None or spec.origin is None:
        return
    for library in Path(spec.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(library)
            return
        except OSError:  # it needs libraries of CUDA, or another version of torch
            continue
    for name in REQUIRED_OPERATORS:
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
