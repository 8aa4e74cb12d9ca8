"""Section "Labels": suspicion of the training labels, detection of wrong labels, and flagged labels with their images."""

from __future__ import annotations

import dataclasses

from PIL import Image

from likewise.report.label_noise import noise_of
from likewise.report.records import LabelNoise
from likewise.report.section import Packing, Section, Study
from likewise.report.thumbnails import read_thumbnails


def of_run(study: Study) -> LabelNoise | None:
    """Return the label noise of a run, with the images of its flagged labels."""
    one = study.one
    found = None if one.run is None else noise_of(one, study.log, study.config.top)
    if found is None or not found.flagged or one.data is None or one.data.path is None or not study.config.max_images:
        return found
    rows = [label.row for label in found.flagged]
    small, _ = read_thumbnails(one.data, rows, title="read flagged images", quiet=study.config.quiet)
    flagged = tuple(dataclasses.replace(label, image=small.get(label.row)) for label in found.flagged)
    return dataclasses.replace(found, flagged=flagged)


def images(found: LabelNoise) -> list[Image.Image]:
    """Return the images of the flagged labels."""
    return [label.image for label in found.flagged if label.image is not None]


def pack(found: LabelNoise, packing: Packing) -> dict:
    """Return the fields of the record, with the index of an image (`slot`) in place of the image."""
    flagged, slot = [], packing.first_image
    for one in found.flagged:
        fields = {name: value for name, value in vars(one).items() if name != "image"}
        flagged.append(fields | {"slot": None if one.image is None else slot})
        slot += one.image is not None
    return vars(found) | {"flagged": flagged}


SECTION = Section("noise", "Labels", "Label noise", of_run=of_run, pack=pack, images=images)
