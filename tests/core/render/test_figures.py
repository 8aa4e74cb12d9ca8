"""What figures share: names that are cut, and files that are written without warnings."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from likewise.core.render.figures import INK_COLOUR, Estimate, entitle, save_figure, shorten, spread, themed_svg


def test_a_long_name_is_cut_to_the_given_length():
    assert (
        shorten("sparrow", 7) == "sparrow" and shorten("sparrows", 7) == "sparro…" and len(shorten("x" * 99, 26)) == 26
    )


def test_a_figure_is_saved_as_png_and_missing_letters_give_no_warning(tmp_path, recwarn):
    figure = Figure(figsize=(2, 1))
    figure.suptitle("猫")
    save_figure(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as page:
        assert page.size == (300, 150)
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_heights_are_spread_no_further_than_needed():
    assert spread(np.array([1.0, 5.0, 9.0]), 1.0, 0.0, 10.0).tolist() == [1, 5, 9]
    assert spread(np.array([5.0, 5.0, 5.0]), 1.0, 0.0, 10.0) == pytest.approx([4, 5, 6])
    assert spread(np.array([9.9, 10.0]), 1.0, 0.0, 10.0) == pytest.approx([9, 10])
    assert spread(np.array([0.0, 0.1]), 1.0, 0.0, 10.0) == pytest.approx([0, 1])
    found = spread(np.sort(np.random.default_rng(0).random(20)), 0.05, 0.0, 1.0)
    assert (np.diff(found) >= 0.05 - 1e-9).all() and found[0] >= 0 and found[-1] <= 1 + 1e-9


def test_an_estimate_is_mean_and_standard_deviation():
    found = Estimate.of([1.0, 2.0, 6.0])
    assert found == (3.0, pytest.approx(7**0.5), 3) and found.text(1) == "3.0 ± 2.6"  # (4 + 1 + 9) / 2 = 7
    alone = Estimate.of([2.25])
    assert (alone.mean, alone.n, alone.text(2)) == (2.25, 1, "2.25") and math.isnan(alone.std)


def test_a_figure_for_a_page_has_its_colours_and_its_text():
    figure = Figure(figsize=(3, 2))
    entitle(figure, "Title & more", "below")
    text = themed_svg(figure)
    assert text.startswith("<svg") and "Title &amp; more" in text and INK_COLOUR not in text and "var(--ink)" in text
    assert themed_svg(figure) == text  # no dates, no random names
