"""identify: the class of an image by its nearest neighbour in a gallery, or "unknown", with the calibration of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from likewise.calibration.gallery import calibrate_gallery
from likewise.config import Search
from likewise.deploy.model_card import GALLERY_FILE
from likewise.index.build import open_index, rows_of
from likewise.index.decision import IndexCalibration, decide, is_same_checkpoint, labelled_vectors
from likewise.index.index import Index
from likewise.runs.calibration import Calibration, read_calibration, write_calibration
from likewise.runs.folder import Run
from likewise.types import Items, LikewiseError

Place = str | os.PathLike
Gallery = Place | tuple[np.ndarray, Sequence[str]]
"""An index folder, a run folder or a file of embeddings; or embeddings and the class name of each."""


class Origin(NamedTuple):
    """Where a network comes from: the folder of a run or an export, the checkpoint, and the similarity of its embeddings."""

    folder: Path
    checkpoint: str
    similarity: str


class KnownClasses(NamedTuple):
    """A gallery, and the calibration for it."""

    index: Index
    calibration: Calibration

    def decide(self, z: Float[np.ndarray, "N D"]) -> list[dict]:
        """Return the decision about every embedding: its class or unknown, and the probability (`index.decision.decide`)."""
        hits = self.index.find(z, 1) if len(z) else []
        return [decide(self.calibration, hit.similarity, self.index.rows.label(hit.place)) for (hit, *_) in hits]


def open_known(origin: Origin, gallery: Gallery | None) -> KnownClasses:
    """Return a gallery with its calibration; None: the gallery of the export, or the embeddings of the run."""
    if isinstance(gallery, tuple):
        return from_arrays(origin, *gallery)
    is_export = "export" in Run(origin.folder).read_json("config.json")
    return from_export(origin, gallery) if is_export else from_run(origin, gallery)


def from_arrays(origin: Origin, z: Float[np.ndarray, "N D"], names: Sequence[str]) -> KnownClasses:
    """Return a gallery in memory with its calibration, derived from the validation classes of the run."""
    z, names = np.asarray(z, np.float32), list(names)
    if z.ndim != 2 or len(z) != len(names) or not len(names):
        raise LikewiseError(
            f"identify: a gallery must be embeddings (N, D) and the class name of each, got shape {z.shape} and "
            f"{len(names)} names"
        )
    if read_calibration(origin.folder) is None:
        raise not_calibrated(origin.folder)
    return KnownClasses(index_of(z, names, origin.similarity), calibrate_gallery(origin.folder, z, names))


def from_export(origin: Origin, gallery: Place | None) -> KnownClasses:
    """Return the gallery that was exported with the network, and its calibration."""
    if gallery is not None:
        raise LikewiseError(
            f"identify: an export knows the gallery of its folder only, got '{gallery}'; load the run, or export it with "
            f"--gallery {gallery}"
        )
    calibration, file = read_calibration(origin.folder), origin.folder / GALLERY_FILE
    if calibration is None or not file.exists():
        raise LikewiseError(
            f"identify: '{origin.folder}' must have a gallery and its calibration; export the calibrated run with "
            "--gallery INDEX_OR_EMBEDDINGS"
        )
    with np.load(file) as stored:
        return KnownClasses(index_of(stored["z"], stored["label"].tolist(), origin.similarity), calibration)


def from_run(origin: Origin, gallery: Place | None) -> KnownClasses:
    """Return a gallery that the run's network embedded (by default the run's own embeddings), and its calibration."""
    index, calibrated = open_target(Run(origin.folder), origin.checkpoint, gallery)
    calibration = calibrated.current()
    if calibration is None:
        raise not_calibrated(origin.folder, calibrated.hint)
    return KnownClasses(index, calibration)


def open_target(
    run: Run, checkpoint: str, gallery: Place | None, say: Callable[[str], None] = lambda line: None
) -> tuple[Index, IndexCalibration]:
    """Return the index of a target of `likewise search` and its calibration; raise unless this network embedded it."""
    target = Path(run.path if gallery is None else gallery).expanduser()
    own = target.resolve() == run.path.resolve()
    config = Search(target=str(target), model=None if own else str(run.path), device="cpu", quiet=True)
    index, network = open_index(config, say)
    assert network is not None  # the run is given
    if network.run.path.resolve() != run.path.resolve():
        raise LikewiseError(f"identify: the gallery must be embedded by the run '{run.path}', got '{target}'")
    network.check_same_network()
    if not is_same_checkpoint(run, network.checkpoint, checkpoint):
        raise LikewiseError(
            f"identify: the gallery must be embedded by the checkpoint {checkpoint} of the run, got {network.checkpoint}; "
            f"embed it again, or take the checkpoint {network.checkpoint}"
        )
    return index, IndexCalibration(index, network)


def index_of(z: Float[np.ndarray, "N D"], names: Sequence[str], similarity: str) -> Index:
    """Return embeddings with class names as an index in memory."""
    classes, y = np.unique(np.asarray(names, str), return_inverse=True)
    items = Items("gallery", y.astype(np.int64), tuple(classes.tolist()), x=z)
    return Index(rows_of(items, np.arange(len(z)), similarity))


def not_calibrated(folder: Path, hint: str = "") -> LikewiseError:
    return LikewiseError(f"identify: {hint or f'the run is not calibrated; run `likewise calibrate {folder}`'}")


def write_identification(folder: Path, run: Run, checkpoint: str, gallery: Place | None, say) -> Calibration | None:
    """Write the calibration of a run into an export, and the gallery if there is one; return it, None if there is none.

    Without a gallery, it is the calibration for the validation gallery of the run.
    """
    if gallery is None:
        calibration = read_calibration(run.path)
        if calibration is None or not is_same_checkpoint(run, calibration.about.get("checkpoint", "best"), checkpoint):
            return None
    else:
        index, calibrated = open_target(run, checkpoint, gallery, say)
        calibration = calibrated.current()
        if calibration is None:
            raise LikewiseError(f"export: --gallery needs a calibrated run; {calibrated.hint}")
        z, names = labelled_vectors(index.rows)
        np.savez(folder / GALLERY_FILE, z=z, label=np.asarray(names, str))
    write_calibration(folder, calibration)
    return calibration
