"""What the objective adds beside the loss. `__all__` is the registry."""

__all__: list[str] = []
