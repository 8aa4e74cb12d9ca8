"""Packages that loggers need, and that not everybody has."""

from __future__ import annotations

import importlib.util
import sys

from likewise.errors import LikewiseError


def must_have(package: str, owner: str) -> None:
    """Raise unless the package is there; the extra of likewise that brings it has the same name. Imports nothing."""
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise LikewiseError(
            f"{owner}: it needs the package {package}, which is not there; pip install 'likewise[{package}]'"
        )
