"""Doubted labels: with their pictures where the data is there, and packed with the numbers of these pictures."""

import numpy as np
from likewise.config import Report
from PIL import Image

from likewise.data import load
from likewise.report.records import Facts, FlaggedLabel, LabelNoise
from likewise.report.section import Packing, Study
from likewise.report.sections import noise
from likewise.report.target import ReportTarget


def study(pictures, items=None):
    return Study(ReportTarget("me", run=pictures, data=items), Report(quiet=True), [], "", [])


def test_doubted_labels_get_their_pictures(finished_pictures, pictures, monkeypatch):
    flagged = tuple(FlaggedLabel(row, "a", "", 0.5, 1.0, None, "") for row in (3, 7))
    monkeypatch.setattr(noise, "noise_of", lambda one, log, top: LabelNoise("", "", None, flagged=flagged))
    found = noise.of_run(study(finished_pictures, load(str(pictures))))
    assert all(isinstance(doubt.image, Image.Image) for doubt in found.flagged) and len(noise.images(found)) == 2
    assert noise.images(noise.of_run(study(finished_pictures))) == [] and noise.of_run(study(None)) is None


def test_a_doubt_is_packed_with_the_number_of_its_picture():
    image = Image.new("RGB", (2, 2))
    flagged = tuple(FlaggedLabel(row, "a", "b", 0.5, 1.0, None, "", image if row else None) for row in range(3))
    found = LabelNoise("", "", None, flagged=flagged, classes=("a",), transition=np.eye(1))
    packed = noise.pack(found, Packing(Facts("x", (), ()), first_image=7))
    assert [doubt["slot"] for doubt in packed["flagged"]] == [None, 7, 8] and packed["classes"] == ("a",)
    assert "picture" not in packed["flagged"][1]
