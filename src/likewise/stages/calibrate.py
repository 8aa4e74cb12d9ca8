"""`likewise calibrate`: thresholds with a promise, and probabilities of nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.calibration.result import Calibrated
    from likewise.config import Calibrate


def calibrate(config: Calibrate, say=print) -> Calibrated:
    """Return the calibration of a run from its validation classes, and write it into the run folder."""
    from likewise.calibration.calibrate import calibrate as work

    return work(config, say)
