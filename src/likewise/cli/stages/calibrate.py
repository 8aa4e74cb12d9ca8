"""`likewise calibrate`: thresholds with a promise, and probabilities of nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Calibrate
    from likewise.deploy.calibration.calibrate import Calibrated


def calibrate(config: Calibrate, say=print) -> Calibrated:
    """Return the calibration of a run from its validation classes, and write it into the run folder."""
    from likewise.deploy.calibration.calibrate import calibrate as work

    return work(config, say)
