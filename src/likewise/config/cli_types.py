"""How a setting is written on the command line."""

from __future__ import annotations

import tyro

Positional = tyro.conf.Positional


def called(name: str):
    """What help calls a positional argument."""
    return tyro.conf.arg(metavar=name)
