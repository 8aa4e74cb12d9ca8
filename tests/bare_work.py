"""What tests send to a bare process: contract checks, examples, and a sound loss spoiled in one way at a time."""

import itertools
import os
import sys
import types

import torch
from likewise.contracts import Loss
from likewise.similarity import compare, is_traced
from torch import Tensor

from likewise import losses
from likewise.core.settings.spec import build
from likewise.testing import CHECK_CLASSES, CHECK_DIM, check_loss

LOSSES = [{"Hierarchical": "Hierarchical(loss=ProxyAnchor())"}.get(name, name) for name in losses.__all__]
"""Every loss on the registry, one that goes around another with that."""


def check_spec(text: str, steps: int = 0) -> None:
    """The contract of a loss, as it is made or after so many steps."""
    torch.set_num_threads(1)

    def make() -> Loss:
        loss = build(text, Loss, classes=CHECK_CLASSES, dim=CHECK_DIM, per_pass=1)
        for step in range(1, steps + 1):
            loss.after_step(step)
        return loss

    check_loss(make)


def check_fault(fault: str) -> None:
    torch.set_num_threads(1)
    check_loss(lambda: Moody(1) if fault == "argument" else Plain(fault))


def run_block(code: str, folder: str) -> None:
    """An example from the docs, run in this folder."""
    os.chdir(folder)
    name = f"example_{sum(known.startswith('example_') for known in sys.modules)}"  # the compiler remembers modules by name
    example = sys.modules[name] = types.ModuleType(name)  # a spec names a part by its module
    exec(compile(code, name, "exec"), example.__dict__)


NUMBERS = itertools.count()


class Shortcut(torch.autograd.Function):
    """A square whose slope is right and whose curvature is lost."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return 2 * grad * ctx.saved_tensors[0].detach()


class Plain(Loss):
    """A sound loss, to spoil in one way at a time. Its arguments are the ways."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault, self.number = fault, next(NUMBERS)  # the number is in no state
        self.count = torch.nn.Parameter(torch.ones(()))

    def forward(self, z, y, ref=None):
        sim, pairs = compare(z, y, ref)
        each = (sim * pairs.pos).sum(1) * 0.1 * self.count
        match self.fault:
            case "mean":
                return each.mean()
            case "nan":
                return each / pairs.neg.sum(1)
            case "root":
                return each + (z[:, None] - z[None]).square().sum(2).sqrt().sum(1)  # the root's slope at 0
            case "order":
                return each * torch.arange(1, len(y) + 1)
            case "inputs":
                y += 1
            case "types":
                self.double()
            case "sixteen":
                return each.bfloat16()
            case "state":
                return each + self.number
            case "reference":
                return each if ref is None else each + 1
            case "float labels":
                return each + (y.float() == y.float()[:, None]).sum(0)
            case "curvature":
                return each + (z.square() if is_traced() else Shortcut.apply(z)).sum(1) * z[:, 0]
            case "graph":
                torch._dynamo.graph_break()
            case "waits":
                return each * (2 if z.device.type == "meta" and bool((y > 0).any()) else 1)
            case "compiled" if torch.compiler.is_compiling():
                return each * 2
        return each


class Moody(Plain):
    """Stores something else than it was given."""

    def __init__(self, scale: int = 0):
        super().__init__()
        self.scale = scale + 1
