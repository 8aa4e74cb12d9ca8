"""calibrate_gallery: the open-set threshold and the probability for another gallery, such as an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from likewise.core.types import LikewiseError
from likewise.deploy.calibration.build import Target, at_most, build_for_gallery
from likewise.runs.calibration import Calibration, Validation, read_calibration, read_validation

MAX_GALLERY_PAIRS = 2_000_000_000
"""Most similarities between validation images and the gallery; for a larger gallery, fewer images of every class are compared."""


def calibrate_gallery(run: Path, z: Float[np.ndarray, "N D"], label_names: Sequence[str]) -> Calibration:
    """Return the calibration of a run for another gallery: the pair threshold stays, `unknown` and the probability change.

    More rows give more false accepts, so images of validation classes are searched in this gallery, without their own class if
    it is there. The rate is that of `likewise calibrate`; where that was the default, it is the default here too.

    Args:
        run: the run folder, or a folder with its calibration.json and calibration.npz.
        z: embeddings of the gallery, as the network of the run computes them.
        label_names: the name of the class of every row of the gallery.
    """
    known, held = read_calibration(Path(run)), read_validation(Path(run))
    if known is None or held is None:
        raise LikewiseError(f"calibrate: '{run}' is not calibrated; run `likewise calibrate {run}` first")
    if len(z) != len(label_names) or not len(z) or z.shape[1:] != held.z.shape[1:]:
        raise LikewiseError(
            f"calibrate: the gallery must have one class name for each row of {held.z.shape[1]} numbers, got {z.shape} and "
            f"{len(label_names)} names; embed it with the network of the run"
        )
    number = {name: label for label, name in enumerate(held.class_name)}
    y = np.asarray([number.setdefault(name, len(number)) for name in label_names], np.int64)
    most = max(1, MAX_GALLERY_PAIRS // len(z))
    kept = at_most(np.arange(len(held.y)), held.y, most)
    used, label = np.unique(held.y[kept], return_inverse=True)
    group = None if held.group is None else held.group[kept]
    names = tuple(held.class_name[c] for c in used)
    place = np.full(len(number), -1)
    place[used] = np.arange(len(used))
    place[len(held.class_name) :] = len(used) + np.arange(len(number) - len(held.class_name))
    part = Validation(held.z[kept], label, names, held.similarity, group)
    return build_for_gallery(part, known, target_of(known), z, place[y])


def target_of(known: Calibration) -> Target:
    """Return what a run was calibrated for."""
    rate = None if known.about.get("rate") == "default" else known.unknown.rate
    return Target("precision" if known.unknown.aim == "precision" else "false accepts", rate)
