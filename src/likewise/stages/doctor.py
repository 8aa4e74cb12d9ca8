"""`likewise doctor`: what is installed on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.config import Doctor, check

if TYPE_CHECKING:
    from likewise.render.machine import Machine


def doctor(config: Doctor, say=print) -> Machine:
    """Return versions, devices, extras, weights, the default backbone and free disk space."""
    check(config)
    from likewise.render.machine import Machine
    from likewise.runs.machine import examine

    return Machine(examine())
