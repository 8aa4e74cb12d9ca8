"""Components by dotted name: imported only where the user allows it, because importing a module runs its code."""

from __future__ import annotations

import importlib

from likewise.core.errors import LikewiseError


def import_dotted(name: str, owner: str, allow_imports: bool):
    """Return the object with a dotted name, such as `my_lab.losses.Mine`.

    Args:
        owner: first words of the error, such as "spec 'my_lab.losses.Mine()'".
        allow_imports: the user's permission (`--allow-imports`). It is never stored in a run folder.
    """
    if not allow_imports:
        raise LikewiseError(
            f"{owner}: '{name}' would be imported, which runs its code; "
            "add --allow-imports (Python: allow_imports=True) if it is trusted code"
        )
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LikewiseError(
            f"{owner}: '{name}' cannot be imported ({error}); check the name, and that its folder is on PYTHONPATH"
        ) from None
