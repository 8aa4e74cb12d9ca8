"""Import the package of a tool when it is used."""

from __future__ import annotations

import importlib
from typing import Any

from likewise.core.errors import LikewiseError


def import_package(name: str, tool: str) -> Any:
    """Return a module of an optional package; raise an error that names the extra, which has the name of the tool."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LikewiseError(
            f"{tool}: the package {name.partition('.')[0]} is missing ({error}); pip install 'likewise[{tool}]'"
        ) from None
