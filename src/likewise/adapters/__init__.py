"""Adapters: parts of other libraries as parts of this one. `__all__` is the registry."""

from likewise.adapters.pml import FromPML

__all__ = ["FromPML"]
