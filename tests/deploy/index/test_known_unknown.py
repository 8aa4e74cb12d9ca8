"""Known or unknown: decisions by hand, thresholds for these rows, levels of similarity, and classes that are added."""

import dataclasses
import json
import math
import os

import numpy as np
import pytest
from likewise.config import Search
from likewise.errors import LikewiseError
from made_calibration import make_calibration, threshold
from make_index import make_index, make_rows

from likewise.deploy.index import known_unknown
from likewise.deploy.index.known_unknown import (
    MIN_NEW_IMAGES,
    IndexCalibration,
    add_with_confusions,
    changed_share,
    checksum_of,
    decide,
    labelled_vectors,
    levels_of,
    own_accepts,
    sentences,
    warning_of,
)
from likewise.deploy.index.open_index import Network
from likewise.deploy.index.search_index import search
from likewise.deploy.index.stored_rows import Rows, pack
from likewise.deploy.index.vector_index import Hit, Index
from likewise.runs.calibration import read_calibration, write_calibration
from likewise.runs.folder import Run


def test_a_decision_by_hand():
    calibration = make_calibration(0.5)
    found = decide(calibration, 0.5, "wren")  # the threshold itself is accepted
    assert found == {
        "unknown": False, "label": "wren", "probability": 0.5, "nearest": "wren", "similarity": 0.5, "threshold": 0.5,
        "reason": "",
    }  # fmt: skip
    found = decide(calibration, 0.25, "wren")
    assert (found["unknown"], found["label"], found["probability"], found["nearest"]) == (True, None, 0.25, "wren")
    assert json.loads(json.dumps(found)) == found  # plain numbers
    refused = decide(dataclasses.replace(calibration, unknown=threshold(None)), 0.75, "wren")
    assert (refused["unknown"], refused["label"], refused["probability"]) == (None, None, 0.75)
    assert refused["threshold"] is None and refused["reason"] == "30 classes promise 0.2 at best"


class FakeNetwork(Network):
    """A network that embedded the index, of a run in a folder."""

    def __init__(self, folder, checkpoint="best", same=True):
        self.run, self.checkpoint, self.same = Run(folder), checkpoint, same

    def is_same(self):
        return self.same


@pytest.fixture
def derived(monkeypatch):
    """The galleries that a threshold was derived for; the threshold is the number of rows / 100."""
    asked = []

    def calibrate(run, z, names):
        asked.append((len(z), list(names)))
        return make_calibration(len(z) / 100)

    monkeypatch.setattr(known_unknown, "calibrate_gallery", calibrate)
    return asked


@pytest.fixture
def calibrated_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").touch()  # so that the last network is another
    write_calibration(tmp_path / "run", make_calibration(0.9))
    return tmp_path / "run"


def test_the_threshold_is_that_of_these_rows_and_is_stored(derived, calibrated_run, tmp_path):
    index = make_index(40)
    index.save(tmp_path / "i")
    one = IndexCalibration(index, FakeNetwork(calibrated_run))
    assert one.current().unknown.value == 0.4 and one.hint == ""
    assert one.current().unknown.value == 0.4 and len(derived) == 1  # kept
    index.remove([0, 1])
    assert one.current().unknown.value == pytest.approx(0.38)
    index.add(index.rows.vectors[:3], ["gull"] * 3, [""] * 3)
    assert one.current().unknown.value == pytest.approx(0.41) and derived[-1][1][-3:] == ["gull"] * 3
    assert [count for count, _ in derived] == [40, 38, 41]
    again = IndexCalibration(Index.open(tmp_path / "i"), FakeNetwork(calibrated_run))
    assert again.current() == one.current() and len(derived) == 3  # read from the folder
    alone = IndexCalibration(Index.open(tmp_path / "i"), None)  # the run is not here
    assert alone.current() == one.current() and alone.hint == ""


def test_another_calibration_of_the_run_is_derived_again(derived, calibrated_run, tmp_path):
    index = make_index(40)
    index.save(tmp_path / "i")
    one = IndexCalibration(index, FakeNetwork(calibrated_run))
    one.current()
    write_calibration(calibrated_run, make_calibration(0.8))
    os.utime(calibrated_run / "calibration.json", ns=(0, 0))  # another time, on every file system
    one.current(exact=False)
    one.current()
    assert len(derived) == 2  # by the open index too, once
    IndexCalibration(Index.open(tmp_path / "i"), FakeNetwork(calibrated_run)).current()
    (tmp_path / "i" / "calibration.json").write_text("{")  # damaged
    IndexCalibration(Index.open(tmp_path / "i"), FakeNetwork(calibrated_run)).current()
    assert len(derived) == 3 and read_calibration(tmp_path / "i").unknown.value == 0.4


def test_rows_that_changed_elsewhere_have_no_stored_threshold(derived, calibrated_run, tmp_path):
    index = make_index(40)
    index.save(tmp_path / "i")
    IndexCalibration(index, FakeNetwork(calibrated_run)).current()
    Index.open(tmp_path / "i").remove([3])
    assert IndexCalibration(Index.open(tmp_path / "i"), None).current() is None


def test_why_there_is_none(derived, calibrated_run, tmp_path, monkeypatch):
    index = make_index(40)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").touch()
    for network, hint in [
        (None, ""),
        (FakeNetwork(calibrated_run, same=False), ""),
        (FakeNetwork(tmp_path / "bare"), f"likewise calibrate {tmp_path / 'bare'}"),
        (FakeNetwork(calibrated_run, "last"), "calibrated for its checkpoint best, and the index was made by last"),
    ]:
        one = IndexCalibration(index, network)
        assert one.current() is None and one.decide([Hit(0, 0.9)]) is None
        assert hint in one.hint and bool(hint) == bool(one.hint)
    assert derived == []

    def refuse(run, z, names):
        raise LikewiseError("calibrate: the gallery has one class")

    monkeypatch.setattr(known_unknown, "calibrate_gallery", refuse)
    one = IndexCalibration(index, FakeNetwork(calibrated_run))
    assert one.current() is None and one.hint == "calibrate: the gallery has one class"


def test_a_page_keeps_the_threshold_over_a_few_changes(derived, calibrated_run, tmp_path):
    index = make_index(200)
    index.save(tmp_path / "i")
    one = IndexCalibration(index, FakeNetwork(calibrated_run))
    one.current()
    old = index.rows
    index.remove([0])
    index.add(index.rows.vectors[:1], ["wren"], [""])
    assert changed_share(old, index.rows) == 0.01 and one.current(exact=False).unknown.value == 2
    assert len(derived) == 1
    index.remove([1])
    assert changed_share(old, index.rows) == pytest.approx(0.015)
    one.decide([Hit(0, 0.9)])
    assert [count for count, _ in derived] == [200, 199]
    index.remove([2])
    one.current()
    assert len(derived) == 3


def test_the_indexs_own_classes_by_hand(subtests):
    """Share of rows, mean over classes, whose nearest row of another class reaches the threshold, one pair at a time."""
    for similarity, least in (("cosine", 0.6), ("euclidean", -6.0)):
        with subtests.test(similarity):
            rows = make_index(40, similarity=similarity).rows
            z, label, each = rows.vectors.astype(np.float64), rows.table["label"], {}
            for i in range(40):
                others = [z[j] for j in range(40) if label[j] != label[i]]
                sims = [z[i] @ o if similarity == "cosine" else -np.linalg.norm(z[i] - o) for o in others]
                each.setdefault(label[i], []).append(max(sims) >= least)
            rates = [np.mean(values) for values in each.values()]
            wanted, t = np.mean(rates), 2.919986  # Student's t, 2 degrees of freedom, 95 %
            bound = max(0, wanted - t * np.std(rates, ddof=1) / 3**0.5)
            calibration = make_calibration(least, similarity=similarity)
            found = own_accepts(rows, calibration)
            assert 0 < wanted < 1 and found == {"own_accepts": f"{wanted:.4f}", "own_accepts_bound": f"{bound:.4f}"}
            warned = warning_of(dataclasses.replace(calibration, about=found))
            assert f"{100 * wanted:.0f} % of its images are taken for another class, and 1 % are promised" in warned
    assert own_accepts(rows, make_calibration(unknown=threshold(None))) == {}
    assert (
        warning_of(None)
        == warning_of(make_calibration(about={"own_accepts": "0.3", "own_accepts_bound": "0.01"}))
        == ""
    )


def test_removed_rows_are_left_out():
    index = make_index(6)
    assert labelled_vectors(index.rows)[0] is index.rows.vectors  # no copy
    rows = dataclasses.replace(index.rows, here=np.array([True, False, True, True, True, True]))
    z, names = labelled_vectors(rows)
    assert z.shape == (5, 8) and names == ["wren", "tit, blue", "wren", "robin", "tit, blue"]
    assert checksum_of(rows) != checksum_of(index.rows)
    other = dataclasses.replace(
        index.rows, vectors=index.rows.vectors[:, ::-1]
    )  # the same row numbers in another index
    assert checksum_of(other) != checksum_of(index.rows)


def test_a_run_without_a_calibration_answers_as_before_with_a_hint(picture_run, pictures):
    query = str(pictures / "4 färg" / "bild 3.png")
    found = search(Search(target=str(picture_run.path), query=query, device="cpu", workers=0, quiet=True))
    assert found.decision is None and f"likewise calibrate {picture_run.path}" in found.hint
    told = json.loads(found.as_json())
    assert told["unknown"] is told["label"] is told["probability"] is None and told["found"] == list(found)
    assert told["hint"] == found.hint


def test_classes_that_trained_are_not_asked(monkeypatch):
    """Training moved "wren" away from the others, so its rows would say that the classes are well apart."""
    rows = make_index(40).rows
    rows.vectors[:] = 0
    label = rows.table["label"]
    rows.vectors[label == 0, 0] = 1
    rows.vectors[label > 0, 1] = 1  # the other two classes are the same
    share = lambda *trained: float(own_accepts(rows, make_calibration(0.5), trained)["own_accepts"])  # noqa: E731
    assert share() == pytest.approx(2 / 3, abs=1e-4) and share("wren") == 1
    assert share("wren", "robin") == share()  # one class is too few


def test_the_search_of_a_calibrated_run(picture_run, pictures, derived, tmp_path):
    write_calibration(picture_run.path, make_calibration(0.9))
    look = {"device": "cpu", "workers": 0, "quiet": True}
    file = pictures / "4 färg" / "bild 3.png"
    found = search(Search(target=str(picture_run.path), query=str(file), out=str(tmp_path / "x.png"), **look))
    assert found.decision["label"] == "4 färg" and found.decision["threshold"] == 0.36
    assert "% of its images are taken for another class, and 1 % are promised" in found.hint
    assert found.decision["similarity"] == found[0]["similarity"] and (tmp_path / "x.png").exists()
    by_row = search(Search(target=str(picture_run.path), query="20", **look))
    assert by_row.decision["similarity"] == by_row[0]["similarity"] < 1  # not the row itself


def test_rows_with_several_labels_get_no_decision(derived, calibrated_run):
    index = make_index(40)
    index.rows = dataclasses.replace(index.rows, labels=tuple((name, "bird") for name in index.rows.class_name))
    one = IndexCalibration(index, FakeNetwork(calibrated_run))
    assert one.current() is None and not derived and one.decide(index.find(index.rows.vectors[:1], 1)[0]) is None
    assert "rows have several labels each" in one.hint
    alone = IndexCalibration(index, None)
    assert alone.current() is None and alone.hint == ""


def by_hand(rows, left_out=()):
    near = []
    for i, z in enumerate(rows.vectors):
        if rows.label(i) not in left_out:
            near.append(max(float(z @ other) for j, other in enumerate(rows.vectors) if rows.label(j) != rows.label(i)))
    return np.quantile(near, 0.9), np.quantile(near, 0.5)


def test_levels_by_hand():
    rows = make_rows(60)
    found = levels_of(rows, None)
    assert (found.same, found.similar) == pytest.approx(by_hand(rows), abs=1e-6)  # float32
    assert found.source.startswith("10 % of the images here have an image of another class")


def test_classes_that_trained_are_no_queries():
    rows = make_rows(60)
    found = levels_of(rows, None, ["wren"])
    assert (found.same, found.similar) == pytest.approx(by_hand(rows, ["wren"]), abs=1e-6)
    assert levels_of(rows, None, ["wren", "robin"]) == levels_of(rows, None)  # one class is too few


def test_the_threshold_of_a_calibrated_run():
    rows = make_rows(60)
    found = levels_of(rows, make_calibration(0.97))
    assert found.same == 0.97 and found.source == "the threshold of the calibrated run"
    assert found.similar == levels_of(rows, None).similar
    low = levels_of(rows, make_calibration(-0.5))
    assert low.same == low.similar == -0.5
    refused = dataclasses.replace(make_calibration(0.5), unknown=threshold(None))
    assert levels_of(rows, refused) == levels_of(rows, None)


def test_too_little_to_say():
    assert levels_of(make_rows(19), None) is None
    assert levels_of(make_rows(40, names=("wren",)), None) is None
    rows = make_rows(60)
    assert levels_of(dataclasses.replace(rows, labels=tuple((name, "bird") for name in rows.class_name)), None) is None


def fixed(index, value):
    """A calibration that does not change with the rows."""
    one = IndexCalibration(index, None)
    one.current = lambda exact=True: make_calibration(unknown=threshold(value))
    return one


@pytest.fixture
def compass(tmp_path):
    """Two known classes: east and north, one row each."""
    table, text = pack(np.arange(2), np.arange(2), ["", ""])
    rows = Rows(np.eye(3, dtype=np.float32)[:2], table, text, ("east", "north"), np.ones(2, bool), "cosine")
    index = Index(rows)
    index.save(tmp_path / "compass")
    return index


def at(*degrees):
    angle = np.deg2rad(degrees)
    return np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1).astype(np.float32)


def test_confusions_by_hand(compass):
    """Cosines to east: 10 degrees 0.98, 40 degrees 0.77; the threshold is 0.9, which 25.8 degrees reach."""
    z = np.concatenate([at(10), at(20), at(40, 41, 42, 43, 44), at(75), at(76), at(-89)])
    names = ["new"] * 10
    row, (report,) = add_with_confusions(fixed(compass, 0.9), z, names, lambda: compass.add(z, names, [""] * 10))
    assert row.tolist() == [*range(2, 12)]
    assert (report["class"], report["images"], report["reason"]) == ("new", 10, "")
    before = {one["class"]: one for one in report["before"]}
    assert {name: one["images"] for name, one in before.items()} == {"east": 2, "north": 2}
    # of the binomial distribution of 10 images: 2 or more have the chance 0.025 at the lower end, 2 or fewer at the upper end
    low, high = before["east"]["low"], before["east"]["high"]
    assert 1 - (1 - low) ** 10 - 10 * low * (1 - low) ** 9 == pytest.approx(0.025, abs=1e-6)
    assert sum(math.comb(10, k) * high**k * (1 - high) ** (10 - k) for k in range(3)) == pytest.approx(0.025, abs=1e-6)
    # with its rows in the index: 20 degrees is nearer to 10 than to east, 75 and 76 to one another; 10 is as near to 20 as to
    # east, and the lower row, east, is first
    assert [(one["class"], one["images"]) for one in report["after"]] == [("east", 1)]
    assert sentences(report)[1:] == [
        "  taken for a known class before it was added: east 20 % (3 to 56), north 20 % (3 to 56)",
        "  confused with another class now: east 10 % (0 to 45)",
    ]


def test_few_images_a_refused_threshold_and_known_classes(compass):
    z, names = at(*range(12)), ["few"] * 3 + ["east"] * 9
    _, (report,) = add_with_confusions(fixed(compass, 0.9), z, names, lambda: compass.add(z, names, [""] * 12))
    assert report["reason"] == f"no estimate: {MIN_NEW_IMAGES} images are needed" and report["before"] == []
    assert sentences(report) == ["new class few (3 images): no estimate: 10 images are needed"]
    _, none = add_with_confusions(
        fixed(compass, 0.9), z, ["east"] * 12, lambda: compass.add(z, ["east"] * 12, [""] * 12)
    )
    assert none == []
    many = ["many"] * 12
    _, (report,) = add_with_confusions(fixed(compass, None), z, many, lambda: compass.add(z, many, [""] * 12))
    assert report["reason"] == "no estimate: 30 classes promise 0.2 at best"


def test_without_a_calibration(tmp_path):
    index = make_index(20)
    index.save(tmp_path / "i")
    z = index.rows.vectors[:10]
    _, (report,) = add_with_confusions(
        IndexCalibration(index, None), z, ["x"] * 10, lambda: index.add(z, ["x"] * 10, [""] * 10)
    )
    assert report["reason"] == "no estimate: the index is not calibrated" and len(index.rows) == 30


def test_no_confusion_has_an_upper_bound(compass):
    z, names = -at(*range(12)), ["far"] * 12
    _, (report,) = add_with_confusions(fixed(compass, 0.9), z, names, lambda: compass.add(z, names, [""] * 12))
    assert report["before"] == report["after"] == []
    assert sentences(report)[1] == "  taken for a known class before it was added: none of them (0 to 26 %)"
