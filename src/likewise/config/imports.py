"""Components by dotted name: imported only where the user allows it, because importing a module runs its code."""

from __future__ import annotations

import importlib

from likewise.errors import LikewiseError


def import_dotted(name: str, owner: str, allow_imports: bool):
    """The object that a dotted name (`my_lab.losses.Mine`) stands for.

    Args:
        owner: what the error begins with, such as "spec 'my_lab.losses.Mine()'".
        allow_imports: the user's permission (`--allow-imports`). A run folder never carries it.
    """
    if not allow_imports:
        raise LikewiseError(
            f"{owner}: '{name}' would be imported, which runs its code; "
            "say --allow-imports (Python: allow_imports=True) if you trust where it comes from"
        )
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LikewiseError(
            f"{owner}: '{name}' cannot be imported ({error}); check the name, and that its folder is on PYTHONPATH"
        ) from None
