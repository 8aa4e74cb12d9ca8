"""Classes that are added: counts and intervals by hand, and "cannot tell" where it cannot."""

import numpy as np
import pytest
from made_calibration import make_calibration, threshold
from make_index import make_index
from scipy.stats import binomtest

from likewise.deploy.index.known_unknown import (
    MIN_NEW_IMAGES,
    IndexCalibration,
    add_with_confusions,
    binomial_interval,
    sentences,
    shares,
)
from likewise.deploy.index.stored_rows import Rows, pack
from likewise.deploy.index.vector_index import Index


def test_the_interval_by_hand_and_by_scipy(subtests):
    # no image of 10: the share p at which (1 - p)^10 = 0.025
    assert binomial_interval(0, 10) == (0, pytest.approx(1 - 0.025**0.1, rel=1e-9))
    assert binomial_interval(10, 10) == (pytest.approx(0.025**0.1, rel=1e-9), 1)
    for count, total in [(0, 24), (1, 12), (6, 24), (24, 24), (300, 5000)]:
        with subtests.test(count=count, total=total):
            found = binomtest(count, total).proportion_ci(method="exact")
            assert binomial_interval(count, total) == pytest.approx((found.low, found.high), rel=1e-6)


def test_shares_by_hand():
    found = shares(["wren", None, "robin", "wren", "gull", None, None, None], "gull")
    assert [(one["class"], one["images"], one["share"]) for one in found] == [("wren", 2, 0.25), ("robin", 1, 0.125)]


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
    assert (before["east"]["low"], before["east"]["high"]) == binomial_interval(2, 10)
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
