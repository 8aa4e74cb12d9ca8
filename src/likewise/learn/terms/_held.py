"""References from one module to another that PyTorch does not register as a submodule."""

from __future__ import annotations

from torch import nn


def hold_without_registering(owner: nn.Module, name: str, value: nn.Module) -> None:
    """Set `owner.name` to a module without registering it, so that it is not saved, moved or trained with the owner."""
    vars(owner)[name] = value
