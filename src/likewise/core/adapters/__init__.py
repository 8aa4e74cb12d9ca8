"""Adapters: components of other libraries as components of this one. `__all__` is the registry."""

from likewise.core.adapters.pml import FromPML

__all__ = ["FromPML"]
