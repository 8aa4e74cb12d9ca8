"""`likewise doctor`: what is installed on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.settings import Doctor, check

if TYPE_CHECKING:
    from likewise.cli.machine_view import Machine


def doctor(config: Doctor, say=print) -> Machine:
    """Return versions, devices, extras, weights, the default backbone and free disk space."""
    check(config)
    from likewise.cli.machine_view import Machine
    from likewise.runs.environment import examine

    return Machine(examine())
