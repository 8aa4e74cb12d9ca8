"""calibrate_gallery: the open-set threshold and the probability for another gallery, such as an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from likewise.runs.calibration import Calibration


def calibrate_gallery(run: Path, z: Float[np.ndarray, "N D"], label_names: Sequence[str]) -> Calibration:
    """Return the calibration of a run for another gallery: the pair threshold stays, `unknown` and the probability change.

    Args:
        z: embeddings of the gallery, as the network of the run computes them.
        label_names: the name of the class of every row of the gallery.
    """
    raise NotImplementedError
