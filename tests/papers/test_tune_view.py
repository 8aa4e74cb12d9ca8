"""The picture of a search: where values stand, and that it is drawn for every kind of trial."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from likewise.papers.tune_view import (
    SearchDimension,
    SearchTrial,
    draw_history,
    draw_lines,
    draw_search,
    ticks,
    where,
)


def test_heights_by_hand():
    assert where(SearchDimension("margin", (), -1.0, 3.0), 1.0) == 0.5
    assert where(SearchDimension("lr", (), 1e-4, 1e-2, True), 1e-3) == pytest.approx(0.5)
    assert where(SearchDimension("dim", ("64", "128")), "64") == 0.25
    assert where(SearchDimension("dim", ("64", "128")), "128") == 0.75


def test_marks_are_choices_powers_of_ten_or_even_steps():
    assert ticks(SearchDimension("dim", ("64", "128"))) == [(0.25, "64"), (0.75, "128")]
    assert ticks(SearchDimension("margin", (), 0.0, 2.0)) == [
        (0, "0"),
        (0.25, "0.5"),
        (0.5, "1"),
        (0.75, "1.5"),
        (1, "2"),
    ]
    heights, texts = zip(*ticks(SearchDimension("lr", (), 1e-5, 1e-2, True)))
    assert texts == ("1e-05", "0.0001", "0.001", "0.01")
    assert heights == pytest.approx((0, 1 / 3, 2 / 3, 1))
    low, *_, high = ticks(SearchDimension("lr", (), 0.2, 0.8, True))  # less than a power of ten
    assert low == (0, "0.2") and high == (1, "0.8")
    assert len(ticks(SearchDimension("t", (), 1e-6, 1e6, True))) <= 7


def shots(count):
    rng = np.random.default_rng(0)
    for number in range(count):
        state = ("complete", "complete", "pruned", "failed")[number % 4]
        at = {"lr": math.exp(rng.uniform(-9, -3)), "loss.miner.a_long_name_of_an_argument": rng.uniform(), "dim": "64"}
        yield SearchTrial(number, rng.uniform(0.2, 0.5) if state == "complete" else None, state, at)


@pytest.mark.parametrize("count", [1, 40])
def test_a_picture_is_drawn(tmp_path, count):
    dials = [
        SearchDimension("lr", (), 1e-4, 1e-1, True),
        SearchDimension("loss.miner.a_long_name_of_an_argument"),
        SearchDimension("dim", ("64", "128")),
    ]
    file = tmp_path / "tune.png"
    draw_search(file, dials, list(shots(count)), "val MAP@R", "Triplet(margin=0.2)")
    with Image.open(file) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("RGB"))
    assert min(pixels.shape[:2]) > 1000
    blue = (np.abs(pixels.astype(int) - (0, 0x72, 0xB2)).sum(2) < 30).sum()
    assert blue > (3000 if count == 40 else 500)  # the scale of the values, and with trials the line of the best


def test_trials_without_a_value_stand_inside_the_picture():
    axes = Figure().subplots()
    draw_history(
        axes,
        [SearchTrial(0, None, "failed", {}), SearchTrial(3, 0.5, "complete", {}), SearchTrial(9, None, "pruned", {})],
        "val",
    )
    low, high = axes.get_xlim()
    assert low < 0 < 9 < high


def test_of_equal_trials_the_first_is_drawn_as_the_best():
    axes = Figure().subplots()
    draw_lines(
        axes,
        [SearchDimension("margin")],
        [SearchTrial(n, v, "complete", {"margin": n / 4}) for n, v in enumerate((0.1, 0.5, 0.5))],
    )
    (lines,) = axes.collections
    width = lines.get_linewidths()
    assert list(width).index(max(width)) == 2  # drawn last, in front
    assert lines.get_segments()[2][0].tolist() == [0, 0.25]
