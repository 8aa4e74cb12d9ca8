"""Optional packages that loggers need."""

from __future__ import annotations

import importlib.util
import sys

from likewise.core.errors import LikewiseError


def require_package(package: str, owner: str) -> None:
    """Raise if a package is not installed; the extra of likewise that installs it has the same name. Imports nothing."""
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise LikewiseError(
            f"{owner}: it needs the package {package}, which is not installed; run pip install 'likewise[{package}]'"
        )
