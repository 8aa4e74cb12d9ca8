"""How far to believe each label while training. `__all__` is the registry."""

__all__: list[str] = []
