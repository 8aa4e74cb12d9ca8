"""Load tensors of a checkpoint into a module that they must fit exactly."""

from __future__ import annotations

import torch
from torch import nn

from likewise.errors import LikewiseError


def load_into(module: nn.Module, tensors: dict[str, torch.Tensor], where) -> None:
    """Load tensors that must fit exactly."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shapes = [k for k in own.keys() & tensors.keys() if own[k].shape != tensors[k].shape]
    if missing or extra or shapes:
        odd = [f"{k} is missing" for k in missing] + [f"{k} is unknown" for k in extra]
        odd += [f"{k} is {tuple(tensors[k].shape)}, not {tuple(own[k].shape)}" for k in sorted(shapes)]
        raise LikewiseError(
            f"run: {where} is the checkpoint of another architecture: {'; '.join(odd[:3])}"
            f"{f' and {len(odd) - 3} more' if len(odd) > 3 else ''}; use the settings it was trained with"
        )
    module.load_state_dict(tensors)
