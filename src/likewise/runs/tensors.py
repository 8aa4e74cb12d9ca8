"""Load the tensors of a checkpoint into a module, with a check of names and shapes."""

from __future__ import annotations

import torch
from torch import nn

from likewise.core.errors import LikewiseError


def load_into(module: nn.Module, tensors: dict[str, torch.Tensor], where) -> None:
    """Load tensors into a module. Raises unless names and shapes are equal; the error names the file `where`."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shapes = [k for k in own.keys() & tensors.keys() if own[k].shape != tensors[k].shape]
    if missing or extra or shapes:
        differences = [f"{k} is missing" for k in missing] + [f"{k} is unknown" for k in extra]
        differences += [f"{k} is {tuple(tensors[k].shape)}, not {tuple(own[k].shape)}" for k in sorted(shapes)]
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise LikewiseError(
            f"run: {where} is the checkpoint of another architecture: {'; '.join(differences[:3])}{more}; "
            "use the settings it was trained with"
        )
    module.load_state_dict(tensors)
