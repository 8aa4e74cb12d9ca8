"""Section "Labels": how far a training believed its labels, and how right it was where the truth is known."""

from __future__ import annotations

import dataclasses

from PIL import Image

from likewise.report.label_trust import noise_of
from likewise.report.records import Noise
from likewise.report.section import Packing, Section, Study
from likewise.report.thumbnails import read_small


def of_run(study: Study) -> Noise | None:
    """Return what is known of the labels of a run, with the pictures of those doubted most."""
    one = study.one
    found = None if one.run is None else noise_of(one, study.log, study.config.top)
    if found is None or not found.doubts or one.data is None or one.data.path is None or not study.config.max_images:
        return found
    rows = [doubt.row for doubt in found.doubts]
    small, _ = read_small(one.data, rows, title="read doubted pictures", quiet=study.config.quiet)
    doubts = tuple(dataclasses.replace(doubt, picture=small.get(doubt.row)) for doubt in found.doubts)
    return dataclasses.replace(found, doubts=doubts)


def pictures(found: Noise) -> list[Image.Image]:
    return [doubt.picture for doubt in found.doubts if doubt.picture is not None]


def pack(found: Noise, packing: Packing) -> dict:
    """With the number of its picture in place of the picture of a doubted label."""
    doubts, slot = [], packing.picture
    for one in found.doubts:
        told = {name: value for name, value in vars(one).items() if name != "picture"}
        doubts.append(told | {"slot": None if one.picture is None else slot})
        slot += one.picture is not None
    return vars(found) | {"doubts": doubts}


SECTION = Section("noise", "Labels", "How far labels were believed", of_run=of_run, pack=pack, pictures=pictures)
