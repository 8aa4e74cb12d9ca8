"""identify: embeddings and a gallery -> class, probability and nearest neighbour of each, or unknown."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from likewise.core.files import load_arrays
from likewise.core.notebook import table, view
from likewise.core.settings import Search
from likewise.core.types import Items, LikewiseError
from likewise.data.features import read_embeddings
from likewise.deploy.calibration.fit_calibration import calibrate_gallery
from likewise.deploy.index import stored_rows
from likewise.deploy.index.known_unknown import NO_CLASS, labelled_vectors
from likewise.deploy.index.open_index import Network, path_of, rows_of
from likewise.deploy.index.vector_index import Index
from likewise.deploy.model_card import GALLERY_FILE
from likewise.runs.calibration import CALIBRATION_FILE, Calibration, read_calibration
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin, rows_in
from likewise.runs.folder import Run


class Neighbour(NamedTuple):
    """The nearest row of the gallery."""

    row: int
    similarity: float
    label: str
    path: str


@dataclass(frozen=True)
class Identity:
    """What an image shows.

    Args:
        label: the class of the nearest neighbour; None unless the image is of a known class.
        probability: probability that the nearest neighbour has the class of the image, if that class is in the gallery.
        is_unknown: whether the image is of no known class; None if the calibration refused a threshold.
        neighbour: the nearest row of the gallery, also of an unknown image.
    """

    label: str | None
    probability: float
    is_unknown: bool | None
    neighbour: Neighbour


class Identified(list[Identity]):
    """One `Identity` for every image."""

    def __init__(self, found: Iterable[Identity] = ()):
        super().__init__(found)

    @view
    def _repr_html_(self) -> str:
        heads = ("class", "probability", "nearest row", "its class", "similarity")
        lines = [
            (one.label or ("unknown" if one.is_unknown else "not decided"), f"{100 * one.probability:.0f} %",
             one.neighbour.row, one.neighbour.label, f"{one.neighbour.similarity:.4f}")
            for one in self
        ]  # fmt: skip
        return table("identified", heads, lines)


class Gallery(NamedTuple):
    """Rows to search in, and the calibration for them."""

    index: Index
    calibration: Calibration


def open_gallery(folder: Path, place: str | os.PathLike | None) -> Gallery:
    """Return the gallery of a calibrated run: the saved index at `place`, or without one the embeddings of its test split.

    Args:
        folder: the run folder, another folder with its calibration.json and calibration.npz, or an export with a gallery.
    """
    if place is None and (folder / GALLERY_FILE).exists():
        return exported_gallery(folder)
    index = open_rows(folder, place)
    if index.rows.labels is not None:
        raise LikewiseError(f"identify: {NO_CLASS}; use a gallery with one label per row")
    return Gallery(index, calibrate_gallery(folder, *labelled_vectors(index.rows)))


def exported_gallery(folder: Path) -> Gallery:
    """Return the gallery that was exported with a network, and its calibration."""
    calibration = read_calibration(folder)
    if calibration is None:
        raise LikewiseError(f"identify: '{folder}' has a gallery without {CALIBRATION_FILE}; export the run again")
    advice = "export the run again"
    stored = load_arrays(folder / GALLERY_FILE, "identify", advice, {"z": ("f", 2), "label": ("U", 1)})
    z, label = stored["z"], stored["label"]
    if len(label) != len(z) or not len(z) or not np.isfinite(z).all():
        raise LikewiseError(
            f"identify: {folder / GALLERY_FILE} is damaged (z must be finite vectors with one label each); {advice}"
        )
    classes, y = np.unique(label, return_inverse=True)
    items = Items("gallery", y.astype(np.int64), tuple(classes.tolist()), x=z)
    return Gallery(Index(rows_of(items, np.arange(len(z)), calibration.similarity)), calibration)


def open_rows(folder: Path, place: str | os.PathLike | None) -> Index:
    """Return the index at `place`, which the network of the run must have embedded, or the embeddings in the run folder."""
    if place is not None:
        path = Path(place).expanduser()
        if not stored_rows.is_index(path):
            raise LikewiseError(f"identify: index must be a folder that `likewise search --save` wrote, got '{place}'")
        index, run = Index.open(path), Run(folder)
        if "format" in run.read_json("config.json"):  # a run; an export has no checksum of its network
            Network(run, index.about["made_by"], index.rows.similarity, Search(str(path))).check_same_network()
    else:
        file = folder / EMBEDDINGS_FILE
        if not file.exists():
            raise LikewiseError(
                f"identify: '{folder}' must have a gallery to look in, but has no {EMBEDDINGS_FILE}; run `likewise evaluate "
                f"{folder}`, or give a saved index: identify(images, index=FOLDER)"
            )
        items, made_by = read_embeddings(str(file)), origin(file)
        index = Index(rows_of(items, rows_in(made_by, len(items)), made_by.get("similarity", "cosine")))
    if not len(index.rows):
        raise LikewiseError(
            "identify: the gallery must have a row, got none; add images: likewise search INDEX --add DATA"
        )
    return index


def identify(z: Float[np.ndarray, "N D"], gallery: Gallery) -> Identified:
    """Return what the images of these embeddings show, by their nearest neighbours in the gallery."""
    index, known = gallery
    hits = [found[0] for found in index.find(z, 1)] if len(z) else []
    sim = np.asarray([hit.similarity for hit in hits])
    probability = known.probability(sim)
    unknown = [None] * len(hits) if known.unknown.value is None else known.is_unknown(sim).tolist()
    made = Identified()
    for hit, chance, is_unknown in zip(hits, probability.tolist(), unknown, strict=True):
        row, label = int(index.rows.table["row"][hit.place]), index.rows.label(hit.place)
        near = Neighbour(row, float(hit.similarity), label, path_of(index, hit.place))
        made.append(Identity(label if is_unknown is False else None, chance, is_unknown, near))
    return made
