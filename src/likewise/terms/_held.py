"""A module that another module uses without owning it."""

from __future__ import annotations

from torch import nn


def hold_without_registering(owner: nn.Module, name: str, value: nn.Module) -> None:
    """Set `owner.name` to a module that is not saved, moved or trained with the owner. Assigning it would register it."""
    vars(owner)[name] = value
