"""The settings of doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Doctor:
    """Print what is installed on this machine: versions, devices, extras, weights, the default backbone and free disk space."""

    json: bool = False
    """Print one JSON object in place of the table."""
