"""Checks of the files that are read from a tool and written for it, before any work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from likewise.core.errors import LikewiseError


def check_source(file: Path, owner: str, kind: str) -> None:
    """Raise unless the source is a file. A folder, a device or a pipe is none; `kind`: what it must be, for the error."""
    if not file.is_file():
        raise LikewiseError(f"{owner}: the source must be {kind}, got '{file}'; check the path")


def check_free(files: Iterable[Path], owner: str, replace: bool) -> None:
    """Raise if a file exists already, unless it may be replaced. A folder is never replaced."""
    for file in files:
        if file.is_dir():
            raise LikewiseError(f"{owner}: '{file}' must be a new file, got a folder; choose another name")
        if not replace and (file.exists() or file.is_symlink()):
            raise LikewiseError(
                f"{owner}: '{file}' must be a new file, but it exists; choose another name, or replace it with --replace"
            )
