"""identify: classes, probabilities, neighbours and unknown images, in the run's own gallery and in an index."""

import dataclasses

import numpy as np
import pytest
from likewise.config import Search
from likewise.types import LikewiseError

import likewise
from likewise.deploy.index.search_index import search
from likewise.deploy.model import Gallery, identify, open_gallery


def test_the_gallery_of_the_run(calibrated, open_run, features):
    model = likewise.load(open_run, device="cpu")
    x = np.load(features)["x"]
    found = model.identify(x[[288 - 1, 0]])
    known, strange = found
    assert known.neighbour.row == 287 and known.neighbour.similarity == pytest.approx(1, abs=1e-6)
    assert known.label == known.neighbour.label == "23" and known.is_unknown is False and 0 < known.probability < 1
    assert strange.neighbour.label in map(str, range(18, 24)) and strange.is_unknown == (strange.label is None)
    assert model.identify(x[:0]) == [] and "23" in found._repr_html_()
    gallery = open_gallery(open_run.path, None)
    limit = gallery.calibration.unknown.value
    assert (strange.neighbour.similarity < limit) == strange.is_unknown


def test_unknown_by_hand(calibrated, open_run):
    gallery = open_gallery(open_run.path, None)
    z = gallery.index.rows.vectors[:1] * 1.0
    far = -z
    found = identify(np.concatenate([z, far]), gallery)
    assert [one.is_unknown for one in found] == [False, True] and found[1].label is None and found[1].neighbour.label
    refusal = dataclasses.replace(gallery.calibration.unknown, value=None, reason="too few classes")
    told = identify(far, Gallery(gallery.index, dataclasses.replace(gallery.calibration, unknown=refusal)))
    assert told[0].is_unknown is None and told[0].label is None and told[0].neighbour.label  # not decided


def test_an_index(calibrated, open_run, features, tmp_path):
    folder = str(tmp_path / "shelf")
    search(Search(str(open_run.path), save=folder, split="test", device="cpu"), say=lambda line: None)
    x, model = np.load(features)["x"], likewise.load(open_run, device="cpu")
    assert model.identify(x[-5:], index=folder) == model.identify(x[-5:])
    search(Search(folder, remove=(287,), device="cpu"), say=lambda line: None)
    again = likewise.load(open_run, device="cpu").identify(x[-1:], index=folder)
    assert again[0].neighbour.row != 287


def test_what_it_needs(calibrated, open_run, features, tmp_path):
    x = np.load(features)["x"][:1]
    with pytest.raises(LikewiseError, match="index must be a folder"):
        likewise.load(open_run, device="cpu").identify(x, index=tmp_path)
    with pytest.raises(LikewiseError, match="the best network of a calibrated run"):
        likewise.load(open_run, checkpoint="last", device="cpu").identify(x)
    (open_run.path / "embeddings.npz").unlink()
    with pytest.raises(LikewiseError, match="must have a gallery to look in"):
        likewise.load(open_run, device="cpu").identify(x)
